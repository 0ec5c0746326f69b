//! Operators that exist in traced code only: each reports one event.

use super::cx::{Cx, Ip, Sp, field, next};
use super::memory::probe;
use crate::probe::{LocalRole, LoopRef, Probe, SiteId};

fn role(bits: u32) -> LocalRole {
    match bits {
        1 => LocalRole::Induction,
        2 => LocalRole::ReduceAdd,
        3 => LocalRole::ReduceAnd,
        4 => LocalRole::ReduceOr,
        5 => LocalRole::ReduceXor,
        _ => LocalRole::Plain,
    }
}

/// Events that are always reported.
macro_rules! events {
    ($($(#[$doc:meta])* $name:ident($cx:ident, $ip:ident, $probe:ident) $report:expr, $bytes:expr;)*) => {$(
        $(#[$doc])*
        pub(super) unsafe extern "C" fn $name<P: Probe>($cx: &mut Cx, $ip: Ip, sp: Sp, mem: *mut u8, acc: u64) -> u64 {
            // SAFETY: code comes from the translator, which gives this opcode the fields named in its comment.
            unsafe {
                let $probe = probe::<P>($cx);
                $report;
                next!($cx, $ip.add($bytes), sp, mem, acc)
            }
        }
    )*};
}
events! {
    /// `site`
    operator(cx, ip, p) p.operator(SiteId(field!(ip, 0))), 16;
    /// `func ordinal`
    loop_exit(cx, ip, p) p.loop_exit(LoopRef { func: field!(ip, 0), ordinal: field!(ip, 1) }, cx.work()), 16;
    /// `site first count`
    result_in(cx, ip, p) p.result_in(SiteId(field!(ip, 0)), field!(ip, 1), field!(ip, 2)), 24;
}

/// Events that the probe is asked about first.
macro_rules! events_unless_known {
    ($($(#[$doc:meta])* $name:ident($cx:ident, $ip:ident, $probe:ident) unless $known:expr => $report:expr, $bytes:expr;)*) => {$(
        $(#[$doc])*
        pub(super) unsafe extern "C" fn $name<P: Probe>($cx: &mut Cx, $ip: Ip, sp: Sp, mem: *mut u8, acc: u64) -> u64 {
            /// Nothing of the handler itself lives across the report. Inlined, it would have every event save registers for it.
            #[inline(never)]
            unsafe extern "C" fn report<P: Probe>($cx: &mut Cx, $ip: Ip, sp: Sp, mem: *mut u8, acc: u64) -> u64 {
                // SAFETY: as for the handler.
                unsafe {
                    let $probe = probe::<P>($cx);
                    $report;
                    next!($cx, $ip.add($bytes), sp, mem, acc)
                }
            }
            // SAFETY: as for `events`.
            unsafe {
                let $probe = probe::<P>($cx).0;
                if $known { next!($cx, $ip.add($bytes), sp, mem, acc) }
                report::<P>($cx, $ip, sp, mem, acc)
            }
        }
    )*};
}
events_unless_known! {
    /// `func ordinal`
    loop_iter(cx, ip, p) unless p.repeats_loop(LoopRef { func: field!(ip, 0), ordinal: field!(ip, 1) })
        => p.loop_iter(LoopRef { func: field!(ip, 0), ordinal: field!(ip, 1) }, cx.work()), 16;
    /// `site local role`
    local_read(cx, ip, p) unless p.knows_local_read(field!(ip, 1), role(field!(ip, 2)))
        => p.local_read(SiteId(field!(ip, 0)), field!(ip, 1), role(field!(ip, 2))), 24;
    /// `site local role`
    local_write(cx, ip, p) unless p.knows_local_write(field!(ip, 1))
        => p.local_write(SiteId(field!(ip, 0)), field!(ip, 1), role(field!(ip, 2))), 24;
    /// `site local role slot`: the slot, which is the local's, holds no result any more.
    local_replace(cx, ip, p) unless p.knows_local_write(field!(ip, 1)) && p.knows_no_result(field!(ip, 3))
        => {
            p.slot_clear(field!(ip, 3));
            probe::<P>(cx).local_write(SiteId(field!(ip, 0)), field!(ip, 1), role(field!(ip, 2)))
        }, 24;
    /// `from to`
    slot_move(cx, ip, p) unless p.knows_no_result(field!(ip, 0)) && p.knows_no_result(field!(ip, 1))
        => p.slot_move(field!(ip, 0), field!(ip, 1)), 16;
    /// `slot`
    slot_clear(cx, ip, p) unless p.knows_no_result(field!(ip, 0))
        => p.slot_clear(field!(ip, 0)), 16;
    /// `site slot`
    slot_use(cx, ip, p) unless p.knows_no_result(field!(ip, 1))
        => p.slot_use(SiteId(field!(ip, 0)), field!(ip, 1)), 16;
}

//! Dispatch by name to `wasmtime_wasi`'s functions over a plain byte slice.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use wasmtime_wasi::p1::{WasiP1Ctx, wasi_snapshot_preview1 as p1};
use wasmtime_wasi::runtime::{in_tokio, with_ambient_tokio_runtime};
use wiggle::GuestMemory;

/// One arm per function: converts each raw argument to its type and waits for the functions that are `async`.
macro_rules! dispatch {
    ($ctx:expr, $memory:expr, $name:expr, $args:expr; $($how:ident $func:ident($($ty:ident)*);)*) => {{
        let mut args = $args.iter().copied();
        match $name {
            $(stringify!($func) => {
                let call = p1::$func($ctx, $memory, $(args.next().unwrap_or_default() as $ty),*);
                Some(dispatch!(@$how call))
            })*
            _ => None,
        }
    }};
    (@now $call:ident) => { $call.map(Some) };
    (@wait $call:ident) => { wait($call).map(Some) };
    (@poll $call:ident) => { in_tokio($call).map(Some) };
    (@exit $call:ident) => { $call.map(|()| None) };
}

/// Runs one function; `None` when there is none of this name. `Ok(None)` is a return without a result.
pub(crate) fn call(
    ctx: &mut WasiP1Ctx,
    memory: &mut GuestMemory<'_>,
    name: &str,
    args: &[u64],
) -> Option<wiggle::error::Result<Option<i32>>> {
    dispatch!(ctx, memory, name, args;
        now args_get(i32 i32);
        now args_sizes_get(i32 i32);
        now clock_res_get(i32 i32);
        now clock_time_get(i32 i64 i32);
        now environ_get(i32 i32);
        now environ_sizes_get(i32 i32);
        wait fd_advise(i32 i64 i64 i32);
        now fd_allocate(i32 i64 i64);
        wait fd_close(i32);
        wait fd_datasync(i32);
        wait fd_fdstat_get(i32 i32);
        now fd_fdstat_set_flags(i32 i32);
        now fd_fdstat_set_rights(i32 i64 i64);
        wait fd_filestat_get(i32 i32);
        wait fd_filestat_set_size(i32 i64);
        wait fd_filestat_set_times(i32 i64 i64 i32);
        wait fd_pread(i32 i32 i32 i64 i32);
        now fd_prestat_dir_name(i32 i32 i32);
        now fd_prestat_get(i32 i32);
        wait fd_pwrite(i32 i32 i32 i64 i32);
        wait fd_read(i32 i32 i32 i32);
        wait fd_readdir(i32 i32 i32 i64 i32);
        wait fd_renumber(i32 i32);
        wait fd_seek(i32 i64 i32 i32);
        wait fd_sync(i32);
        now fd_tell(i32 i32);
        wait fd_write(i32 i32 i32 i32);
        wait path_create_directory(i32 i32 i32);
        wait path_filestat_get(i32 i32 i32 i32 i32);
        wait path_filestat_set_times(i32 i32 i32 i32 i64 i64 i32);
        wait path_link(i32 i32 i32 i32 i32 i32 i32);
        wait path_open(i32 i32 i32 i32 i32 i64 i64 i32 i32);
        wait path_readlink(i32 i32 i32 i32 i32 i32);
        wait path_remove_directory(i32 i32 i32);
        wait path_rename(i32 i32 i32 i32 i32 i32);
        wait path_symlink(i32 i32 i32 i32 i32);
        wait path_unlink_file(i32 i32 i32);
        poll poll_oneoff(i32 i32 i32 i32);
        exit proc_exit(i32);
        now proc_raise(i32);
        now random_get(i32 i32);
        now sched_yield();
        now sock_accept(i32 i32 i32);
        now sock_recv(i32 i32 i32 i32 i32 i32);
        now sock_send(i32 i32 i32 i32 i32);
        now sock_shutdown(i32 i32);
    )
}

/// Completes a future. Nearly all are ready at once, since file operations run on this thread; entering the runtime for each
/// would cost more than the call.
fn wait<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let first = with_ambient_tokio_runtime(|| future.as_mut().poll(&mut Context::from_waker(Waker::noop())));
    match first {
        Poll::Ready(output) => output,
        Poll::Pending => in_tokio(future),
    }
}

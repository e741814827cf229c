"""The worker pool: native threads that share the tasks of a unit, without the GIL.

A unit that is split (parallel/tasks.py) is a function of a task number; `spmd.workers.run` runs all tasks on the caller
and the workers, which take task numbers from a counter. Workers are started at the first call, one pool per process;
they serve one caller at a time. If the pool is busy, also in a nested call, the caller runs all tasks itself. An idle
worker spins briefly and then sleeps (parallel/sleeping.py). After a fork the child starts its own workers. At exit
workers end before their code is unloaded.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal

from spmd.backends.llvm.jit.jit import Library, compile_ir, once_per_process
from spmd.backends.llvm.jit.processor import chosen
from spmd.backends.llvm.matmul.blas import thread_count
from spmd.backends.llvm.parallel import sleeping

#: The function that runs tasks: `void (ptr function, ptr frame, i64 tasks, i64 threads, i1 products)`, where `function`
#: is a `void (ptr frame, i64 task)`. While tasks that call BLAS run (`products`), BLAS is single-threaded.
RUN = "spmd.workers.run"
#: Most threads of a pool, including the caller.
MOST_THREADS = 256
#: Spins before a thread sleeps: some tens of microseconds.
_PATIENCE = 1000


def symbols() -> dict[str, int]:
    """Return the address of `RUN`."""
    return {RUN: pool().address(RUN)}


@once_per_process
def pool() -> Library:
    """Return the code of this process's pool."""
    library = compile_ir(_text(), {})
    reset = ctypes.CFUNCTYPE(None)(library.address("spmd.workers.reset"))
    stop = ctypes.CFUNCTYPE(None)(library.address("spmd.workers.stop"))
    known = thread_count()
    if known is not None:
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(library.address("spmd.workers.use_blas"))(
            known.get, known.set
        )
    reset()
    os.register_at_fork(after_in_child=reset)
    atexit.register(stop)
    return library


def _text() -> str:
    processor = chosen()
    text = _TEMPLATE + f"declare {processor.pause.replace('i32 1', 'i32')}\n" + sleeping.text(processor.architecture)
    set_mask = int(signal.SIG_SETMASK)
    for name, value in (
        ("PAUSE", processor.pause), ("PATIENCE", _PATIENCE), ("MOST", MOST_THREADS), ("SET_MASK", set_mask)
    ):  # fmt: skip
        text = text.replace(name, str(value))
    return text


# Shared state of callers and workers, each word on its own cache line:
#
# owner     1 while a caller uses the pool
# epoch     counts calls: the word that workers wait on
# active    state of a call: 2^30 while workers may join it, plus the number that have joined
# next      the next task to take
# sleeping  workers that sleep, or are about to
#
# blas_users counts callers whose tasks call BLAS: the first sets BLAS to one thread, the last restores its setting.
#
# It is not optimized: that took half of the compile time, which the first program of a process waits for, without
# making it faster.
#
# A worker increments `active` before it reads the call's arguments, and the caller returns only when the count is 0 and
# joining is closed: so the arguments belong to one call.
_TEMPLATE = """
@owner = internal global i32 0, align 64
@epoch = internal global i32 0, align 64
@active = internal global i32 0, align 64
@next = internal global i64 0, align 64
@sleeping = internal global i32 0, align 64
@stopped = internal global i32 0, align 64
@started = internal global i64 0, align 8
@function = internal global ptr null, align 8
@frame = internal global ptr null, align 8
@parts = internal global i64 0, align 8
@blas_lock = internal global i32 0, align 64
@blas_users = internal global i64 0, align 8
@blas_threads = internal global i32 0, align 8
@get_blas_threads = internal global ptr null, align 8
@set_blas_threads = internal global ptr null, align 8
@helpers = internal global i32 0, align 8
@handles = internal global [MOST x i64] zeroinitializer, align 8

define void @spmd.workers.run(ptr %function, ptr %frame, i64 %parts, i64 %threads, i1 %products) #0 {
entry:
  call void @use_blas(i1 %products, i64 1)
  %several = icmp ugt i64 %parts, 1
  %pays = icmp ugt i64 %threads, 1
  %wanted = and i1 %several, %pays
  br i1 %wanted, label %ask, label %alone
ask:
  %taken = cmpxchg ptr @owner, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %taken, 1
  br i1 %mine, label %prepare, label %alone
prepare:
  %most = call i64 @llvm.umin.i64(i64 %threads, i64 MOST)
  %useful = call i64 @llvm.umin.i64(i64 %most, i64 %parts)
  %help = sub i64 %useful, 1
  %there = load i64, ptr @started
  %few = icmp ult i64 %there, %help
  br i1 %few, label %start, label %open
start:
  call void @spmd.workers.start(i64 %help)
  br label %open
open:
  %help32 = trunc i64 %help to i32
  store ptr %function, ptr @function
  store ptr %frame, ptr @frame
  store i64 %parts, ptr @parts
  store i32 %help32, ptr @helpers
  store atomic i64 0, ptr @next monotonic, align 8
  store atomic i32 1073741824, ptr @active release, align 4
  %old = atomicrmw add ptr @epoch, i32 1 seq_cst
  %asleep = load atomic i32, ptr @sleeping seq_cst, align 4
  %some = icmp ne i32 %asleep, 0
  br i1 %some, label %wake, label %work
wake:
  call void @wake(ptr @epoch, i32 %help32)
  br label %work
work:
  call void @take(ptr %function, ptr %frame, i64 %parts)
  %closed = atomicrmw and ptr @active, i32 -1073741825 seq_cst
  br label %wait
wait:
  %turn = phi i64 [ 0, %work ], [ %turns, %look ], [ 0, %sleep ]
  %joined = load atomic i32, ptr @active acquire, align 4
  %done = icmp eq i32 %joined, 0
  br i1 %done, label %leave, label %look
look:
  call PAUSE
  %turns = add i64 %turn, 1
  %long = icmp ugt i64 %turns, PATIENCE
  br i1 %long, label %sleep, label %wait
sleep:
  call void @sleep_on(ptr @active, i32 %joined)
  br label %wait
leave:
  store atomic i32 0, ptr @owner release, align 4
  br label %end
alone:
  %any = icmp ne i64 %parts, 0
  br i1 %any, label %each, label %end
each:
  %part = phi i64 [ 0, %alone ], [ %following, %each ]
  call void %function(ptr %frame, i64 %part)
  %following = add i64 %part, 1
  %more = icmp ult i64 %following, %parts
  br i1 %more, label %each, label %end
end:
  call void @use_blas(i1 %products, i64 -1)
  ret void
}

define internal void @lock_blas() #0 {
entry:
  br label %try
try:
  %taken = cmpxchg ptr @blas_lock, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %taken, 1
  br i1 %mine, label %done, label %pause
pause:
  call PAUSE
  br label %try
done:
  ret void
}

define internal void @use_blas(i1 %products, i64 %change) #0 {
entry:
  br i1 %products, label %lock, label %leave
lock:
  call void @lock_blas()
  %before = load i64, ptr @blas_users
  %after = add i64 %before, %change
  store i64 %after, ptr @blas_users
  %least = call i64 @llvm.umin.i64(i64 %before, i64 %after)
  %alone = icmp eq i64 %least, 0
  br i1 %alone, label %first_or_last, label %unlock
first_or_last:
  %comes = icmp sgt i64 %change, 0
  br i1 %comes, label %ask, label %restore
ask:
  %get = load ptr, ptr @get_blas_threads
  %known = icmp ne ptr %get, null
  br i1 %known, label %set_one, label %unlock
set_one:
  %threads = call i32 %get()
  store i32 %threads, ptr @blas_threads
  %set = load ptr, ptr @set_blas_threads
  call void %set(i32 1)
  br label %unlock
restore:
  call void @restore_blas()
  br label %unlock
unlock:
  store atomic i32 0, ptr @blas_lock release, align 4
  br label %leave
leave:
  ret void
}

define internal void @restore_blas() #0 {
entry:
  %set = load ptr, ptr @set_blas_threads
  %known = icmp ne ptr %set, null
  br i1 %known, label %change, label %leave
change:
  %before = load i32, ptr @blas_threads
  call void %set(i32 %before)
  br label %leave
leave:
  ret void
}

define void @spmd.workers.use_blas(ptr %get, ptr %set) #0 {
entry:
  store ptr %get, ptr @get_blas_threads
  store ptr %set, ptr @set_blas_threads
  ret void
}

define internal void @take(ptr %function, ptr %frame, i64 %parts) #0 {
entry:
  br label %loop
loop:
  %part = atomicrmw add ptr @next, i64 1 monotonic
  %is = icmp ult i64 %part, %parts
  br i1 %is, label %do, label %end
do:
  call void %function(ptr %frame, i64 %part)
  br label %loop
end:
  ret void
}

define internal ptr @serve(ptr %started_at) #0 {
entry:
  %before = ptrtoint ptr %started_at to i64
  %first = trunc i64 %before to i32
  br label %idle
idle:
  %seen = phi i32 [ %first, %entry ], [ %epoch, %look ], [ %epoch, %left ]
  br label %wait
wait:
  %turn = phi i64 [ 0, %idle ], [ %turns, %pause ], [ 0, %doze ]
  %now_at = load atomic i32, ptr @epoch acquire, align 4
  %changed = icmp ne i32 %now_at, %seen
  br i1 %changed, label %awake, label %pause
pause:
  call PAUSE
  %turns = add i64 %turn, 1
  %long = icmp ugt i64 %turns, PATIENCE
  br i1 %long, label %doze, label %wait
doze:
  %in = atomicrmw add ptr @sleeping, i32 1 seq_cst
  call void @sleep_on(ptr @epoch, i32 %seen)
  %out = atomicrmw sub ptr @sleeping, i32 1 seq_cst
  br label %wait
awake:
  %epoch = load atomic i32, ptr @epoch acquire, align 4
  %over = load atomic i32, ptr @stopped acquire, align 4
  %ends = icmp ne i32 %over, 0
  br i1 %ends, label %end, label %look
look:
  %state = load atomic i32, ptr @active acquire, align 4
  %is_open = icmp uge i32 %state, 1073741824
  br i1 %is_open, label %room, label %idle
room:
  %count = and i32 %state, 1073741823
  %helpers = load i32, ptr @helpers
  %free = icmp ult i32 %count, %helpers
  %joined = add i32 %state, 1
  br i1 %free, label %join, label %left
join:
  %swap = cmpxchg ptr @active, i32 %state, i32 %joined acq_rel monotonic
  %in_it = extractvalue { i32, i1 } %swap, 1
  br i1 %in_it, label %work, label %look
work:
  %function = load ptr, ptr @function
  %frame = load ptr, ptr @frame
  %parts = load i64, ptr @parts
  call void @take(ptr %function, ptr %frame, i64 %parts)
  %rest = atomicrmw sub ptr @active, i32 1 acq_rel
  %last = icmp eq i32 %rest, 1
  br i1 %last, label %tell, label %left
tell:
  call void @wake(ptr @active, i32 1)
  br label %left
left:
  br label %idle
end:
  ret ptr null
}

define internal void @spmd.workers.start(i64 %wanted) #0 {
entry:
  %all = alloca [128 x i8], align 8
  %kept = alloca [128 x i8], align 8
  %f = call i32 @sigfillset(ptr %all)
  %b = call i32 @pthread_sigmask(i32 SET_MASK, ptr %all, ptr %kept)
  %epoch = load atomic i32, ptr @epoch acquire, align 4
  %wide = zext i32 %epoch to i64
  %argument = inttoptr i64 %wide to ptr
  br label %loop
loop:
  %there = load i64, ptr @started
  %few = icmp ult i64 %there, %wanted
  br i1 %few, label %make, label %end
make:
  %handle = getelementptr [MOST x i64], ptr @handles, i64 0, i64 %there
  %failed = call i32 @pthread_create(ptr %handle, ptr null, ptr @serve, ptr %argument)
  %made = icmp eq i32 %failed, 0
  br i1 %made, label %one_more, label %end
one_more:
  %after = add i64 %there, 1
  store i64 %after, ptr @started
  br label %loop
end:
  %r = call i32 @pthread_sigmask(i32 SET_MASK, ptr %kept, ptr null)
  ret void
}

define void @spmd.workers.reset() #0 {
entry:
  call void @prepare()
  store i32 0, ptr @owner
  store i32 0, ptr @active
  store i32 0, ptr @sleeping
  store i64 0, ptr @started
  store i32 0, ptr @blas_lock
  %users = load i64, ptr @blas_users
  %inside = icmp ne i64 %users, 0
  br i1 %inside, label %free, label %done
free:
  store i64 0, ptr @blas_users
  call void @restore_blas()
  br label %done
done:
  ret void
}

define void @spmd.workers.stop() #0 {
entry:
  store atomic i32 1, ptr @stopped seq_cst, align 4
  %mine = cmpxchg ptr @owner, i32 0, i32 1 seq_cst monotonic
  %e = atomicrmw add ptr @epoch, i32 1 seq_cst
  call void @wake(ptr @epoch, i32 2147483647)
  %count = load i64, ptr @started
  %any = icmp ne i64 %count, 0
  br i1 %any, label %join, label %end
join:
  %place = phi i64 [ 0, %entry ], [ %following, %join ]
  %at = getelementptr [MOST x i64], ptr @handles, i64 0, i64 %place
  %handle = load i64, ptr %at
  %j = call i32 @pthread_join(i64 %handle, ptr null)
  %following = add i64 %place, 1
  %more = icmp ult i64 %following, %count
  br i1 %more, label %join, label %end
end:
  store i64 0, ptr @started
  ret void
}

declare i32 @sigfillset(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i64 @llvm.umin.i64(i64, i64)
attributes #0 = { noinline nounwind optnone }
"""

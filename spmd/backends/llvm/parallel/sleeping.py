"""How a worker sleeps until a word of memory changes: by futex on Linux, else by a condition variable.

Both define: `@prepare()`, called before any other and in a forked child; `@sleep_on(ptr word, i32 seen)`, which returns
at once if the word differs from `seen`, and may return spuriously; `@wake(ptr word, i32 count)`, called after a change
of the word. Sources: futex(2); POSIX.1-2017, pthread_cond_wait.
"""

from __future__ import annotations

from collectives.system import IS_LINUX

#: System call number of futex by architecture.
_NUMBERS = {"x86_64": 202, "aarch64": 98}
#: FUTEX_WAIT and FUTEX_WAKE, with FUTEX_PRIVATE_FLAG.
_WAIT, _WAKE = 128, 129

_FUTEX = """
define internal void @prepare() #0 {
  ret void
}

define internal void @sleep_on(ptr %word, i32 %seen) #0 {
  %r = call i64 (i64, ...) @syscall(i64 NUMBER, ptr %word, i32 WAIT, i32 %seen, ptr null, ptr null, i32 0)
  ret void
}

define internal void @wake(ptr %word, i32 %count) #0 {
  %r = call i64 (i64, ...) @syscall(i64 NUMBER, ptr %word, i32 WAKE, i32 %count, ptr null, ptr null, i32 0)
  ret void
}

declare i64 @syscall(i64, ...)
"""

# All words share one mutex and one condition variable, so wake-ups may be spurious. A sleeper holds the mutex from its
# check of the word until it sleeps, and a waker takes it after the change: no wake-up is lost.
_CONDITION = """
@mutex = internal global [128 x i8] zeroinitializer, align 64
@condition = internal global [128 x i8] zeroinitializer, align 64

define internal void @prepare() #0 {
  %m = call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  %c = call i32 @pthread_cond_init(ptr @condition, ptr null)
  ret void
}

define internal void @sleep_on(ptr %word, i32 %seen) #0 {
entry:
  %l = call i32 @pthread_mutex_lock(ptr @mutex)
  %now = load atomic i32, ptr %word seq_cst, align 4
  %same = icmp eq i32 %now, %seen
  br i1 %same, label %sleep, label %end
sleep:
  %w = call i32 @pthread_cond_wait(ptr @condition, ptr @mutex)
  br label %end
end:
  %u = call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}

define internal void @wake(ptr %word, i32 %count) #0 {
  %l = call i32 @pthread_mutex_lock(ptr @mutex)
  %b = call i32 @pthread_cond_broadcast(ptr @condition)
  %u = call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}

declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
"""


def text(architecture: str) -> str:
    """Return the IR of the functions for this system, on a processor of `architecture`."""
    number = _NUMBERS.get(architecture)
    if not IS_LINUX or number is None:
        return _CONDITION
    return _FUTEX.replace("NUMBER", str(number)).replace("WAIT", str(_WAIT)).replace("WAKE", str(_WAKE))

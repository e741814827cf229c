"""How a worker sleeps until a word of memory changes: in Linux's kernel (futex), elsewhere on a condition of pthreads.

Either defines the same functions: `@prepare()` before any other is called, and in a forked child; `@sleep_on(ptr word,
i32 seen)`, which returns at once where the word is another by now, and may return for no reason; `@wake(ptr word, i32
count)` after the word was changed. Sources: futex(2); POSIX.1-2017, pthread_cond_wait.
"""

from __future__ import annotations

from collectives.system import IS_LINUX

#: The number of the system call by architecture.
_NUMBERS = {"x86_64": 202, "aarch64": 98}
#: Its operations, on memory of this process alone.
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

# All words share one mutex and one condition: whoever is woken for nothing sleeps again. The mutex is held between a
# sleeper's look at the word and its sleep, and who wakes takes it after the word was changed: no change is missed.
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
    """Return the functions in LLVM's text for this system, on a processor of `architecture`."""
    number = _NUMBERS.get(architecture)
    if not IS_LINUX or number is None:
        return _CONDITION
    return _FUTEX.replace("NUMBER", str(number)).replace("WAIT", str(_WAIT)).replace("WAKE", str(_WAKE))

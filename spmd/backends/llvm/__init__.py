"""Native code from the schedule, through LLVM."""

"""From a module to an executable: passes over the program, then programs of closures."""

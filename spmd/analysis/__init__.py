"""What is known of a program: read by the partitioner, the compiler and the back ends."""

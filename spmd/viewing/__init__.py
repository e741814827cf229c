"""What a person sees of a program: `spmd.view`'s page. Data is made of the compiler's own objects, then drawn."""

# Filled in with the install rules of the library.

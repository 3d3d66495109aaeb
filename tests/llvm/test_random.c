/* The random kernels of the C printer, through LLVM. */
#include "tests/backend/jit.h"

#include "tests/backend/test_random.c"

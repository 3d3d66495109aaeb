/* What tests/backend/test_kernels_index.c tests of C, of LLVM. */
#include "tests/backend/jit.h"

#include "tests/backend/test_kernels_index.c" /* NOLINT */

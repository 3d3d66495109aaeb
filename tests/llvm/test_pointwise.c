/* What tests/backend/test_pointwise.c tests of C, of LLVM. */
#include "tests/backend/jit.h"

#include "tests/backend/test_pointwise.c" /* NOLINT */

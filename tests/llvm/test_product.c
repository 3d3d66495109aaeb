/* What tests/backend/test_product.c tests of C, of LLVM. */
#include "tests/backend/jit.h"

#include "tests/backend/test_product.c" /* NOLINT */

/* Random kernels, as CUDA under the shim, against the evaluator. */
#include "tests/backend/cuda_harness.h"

#define RANDOM_NEST_NARROW
#define RANDOM_FUSED false
#include "tests/backend/test_random.c"

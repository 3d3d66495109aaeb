/* Kernels that update, accumulate and order, as CUDA under the shim, against the evaluator. */
#include "tests/backend/cuda_harness.h"

int main_of_c(void);
#define main main_of_c
#include "tests/backend/test_kernels_index.c"
#undef main

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_in_place),
        cmocka_unit_test(running_folds),
        cmocka_unit_test(first_of_rows),
        cmocka_unit_test(scatter_to_split_rows),
    };
    (void)main_of_c;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "tests/backend/cuda_harness.h"
int main_of_c(void);
#define main main_of_c
#include "tests/backend/test_pointwise.c"
#undef main
int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_pointwise), cmocka_unit_test(constant_powers)};
    (void)functions_in_vector_code, (void)main_of_c;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

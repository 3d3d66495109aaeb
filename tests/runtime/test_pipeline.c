/* Pipelines whose ranks are threads: what happens when a rank fails, when nobody moves any more, when tables are wrong.
 * Right numbers are the business of comm_check. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "chain.h"

#include <stdio.h>

static float y[CHAIN_MICROBATCHES * CHAIN_LENGTH];

static int run(aprt_instance *in, const fault *f)
{
    memset(y, 0, sizeof y);
    chain_fault = f;
    return aprt_run(in, (const void *const[]){f}, (void *const[]){y});
}

static void open_chain(chain *c, int32_t ranks, aprt_instance **out)
{
    chain_make(c, ranks);
    assert_int_equal(aprt_open(&c->program, NULL, out), APRT_OK);
}

/* Wrong data in any stage and microbatch: everybody comes home, the text is right, the instance goes on. */
static void wrong_data(void **state)
{
    (void)state;
    static chain c;
    aprt_instance *in;
    char text[256];
    open_chain(&c, 4, &in);
    for (int32_t rank = 0; rank < 4; rank++)
        for (int64_t mb = 0; mb < CHAIN_MICROBATCHES; mb++) {
            const fault bad = {FAULT_INDEX, rank, mb, 0}, good = {FAULT_NONE, 0, 0, 0};
            assert_int_equal(run(in, &bad), APRT_ERR_DATA);
            snprintf(
                text, sizeof text,
                "rank %d, stage %d (\"link\"), microbatch %d, instruction 1 (gather), node \"emb\" (Gather): index "
                "12 is outside [0, 7)",
                rank, rank, (int)mb);
            assert_string_equal(aprt_error(in), text);
            assert_int_equal(run(in, &good), APRT_OK);
            assert_true(chain_right(4, y));
        }
    aprt_close(in);
}

/* Anything else, and the instance can only be closed. */
static void a_failure(void **state)
{
    (void)state;
    static chain c;
    aprt_instance *in;
    const fault bad = {FAULT_CALL, 1, 3, 0}, good = {FAULT_NONE, 0, 0, 0};
    const char *text = "rank 1, stage 1 (\"link\"), microbatch 3, instruction 1 (gather), node \"emb\" (Gather): the "
                       "library is ill";
    open_chain(&c, 3, &in);
    assert_int_equal(run(in, &bad), APRT_ERR_ENV);
    assert_string_equal(aprt_error(in), text);
    assert_int_equal(run(in, &good), APRT_ERR_USAGE);
    assert_string_equal(aprt_error(in), text);
    aprt_close(in);
}

/* ---- the watchdog ---- */

static void stalls(fault_kind kind, int32_t rank, int64_t mb, const char *text)
{
    static chain c;
    aprt_instance *in;
    const fault bad = {kind, rank, mb, 0};
    setenv("AUTOPAR_WATCHDOG", "0.4", 1);
    open_chain(&c, 3, &in);
    assert_int_equal(run(in, &bad), APRT_ERR_ENV);
    if (!strstr(aprt_error(in), text))
        fail_msg("\"%s\" is not in \"%s\"", text, aprt_error(in));
    assert_non_null(strstr(aprt_error(in), "nothing has moved for 0.4 seconds"));
    aprt_close(in);
    unsetenv("AUTOPAR_WATCHDOG");
}

static void nobody_moves(void **state)
{
    (void)state;
    /* 4 or 5: rank 1 may have taken one ahead */
    stalls(FAULT_LEAVE, 1, 2, "rank 0 (stage \"link\") waits for rank 1 to take microbatch ");
    stalls(FAULT_LEAVE, 1, 2, "rank 2 (stage \"link\") waits for rank 1 to send microbatch 2 of channel \"h\"");
    stalls(FAULT_LEAVE, 0, 5, "rank 1 (stage \"link\") waits for rank 0 to send microbatch 5 of channel \"h\"");
}

/* A kernel may take as long as it likes. */
static void a_slow_kernel(void **state)
{
    (void)state;
    static chain c;
    aprt_instance *in;
    const fault slow = {FAULT_SLOW, 1, 2, 1.2};
    setenv("AUTOPAR_WATCHDOG", "0.3", 1);
    open_chain(&c, 4, &in);
    assert_int_equal(run(in, &slow), APRT_OK);
    assert_true(chain_right(4, y));
    aprt_close(in);
    unsetenv("AUTOPAR_WATCHDOG");
}

static void wrong_bound(void **state)
{
    (void)state;
    static chain c;
    aprt_instance *in;
    static const char *const texts[] = {"0", "-1", "soon", "1e9", "nan"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        setenv("AUTOPAR_WATCHDOG", texts[i], 1);
        chain_make(&c, 2);
        assert_int_equal(aprt_open(&c.program, NULL, &in), APRT_ERR_USAGE);
        assert_non_null(strstr(aprt_error(in), "AUTOPAR_WATCHDOG"));
        aprt_close(in);
    }
    unsetenv("AUTOPAR_WATCHDOG");
}

/* ---- tables ---- */

static void refused(const chain *c, const char *text)
{
    aprt_instance *in;
    assert_int_equal(aprt_open(&c->program, NULL, &in), APRT_ERR_BUG);
    if (!strstr(aprt_error(in), text))
        fail_msg("\"%s\" is not in \"%s\"", text, aprt_error(in));
    aprt_close(in);
}

#define REFUSED(change, text)                                                                                          \
    do {                                                                                                               \
        static chain c;                                                                                                \
        chain_make(&c, 3);                                                                                             \
        change;                                                                                                        \
        refused(&c, text);                                                                                             \
    } while (0)

static void wrong_tables(void **state)
{
    (void)state;
    REFUSED(c.stage[1].first_rank = 0, "rank 0 is in two stages");
    REFUSED(c.stage[1].first_rank = 3, "ranks outside");
    REFUSED(c.program.nranks = 4, "rank 3 is in no stage");
    REFUSED(c.program.microbatches = 0, "0 microbatches");
    REFUSED(c.stage[0].list = NULL, "no instructions");
    REFUSED(c.input[1][0] = 1, "not there");
    REFUSED(c.input[1][1] = -9, "not there");
    REFUSED(c.channel[0].dst_stage = 0, "from one stage to another");
    REFUSED(c.channel[0].dst_stage = 9, "from one stage to another");
    REFUSED(c.channel[0].dst_input = 2, "slots are not in the stages");
    REFUSED(c.channel[0].src_depth = 0, "slots are not in the stages");
    REFUSED(c.channel[0].src_depth = 1000, "slots are not in the stages");
    REFUSED(c.channel[0].dst_at = -4, "slots are not in the stages");
    REFUSED(c.channel[0].dst_bytes = INT64_MAX, "slots are not in the stages");
    REFUSED(c.channel[0].dtype = 99, "slots are not in the stages");
    REFUSED(c.piece[0].dst_rank = 2, "piece 0");
    REFUSED(c.piece[0].src_offset = 1, "piece 0");
    REFUSED(c.piece[0].extent[0] = 0, "piece 0");
    REFUSED(c.piece[0].src_stride[0] = INT64_MAX, "piece 0");
    REFUSED(c.piece[0].ndims = 17, "piece 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_data),    cmocka_unit_test(a_failure),   cmocka_unit_test(nobody_moves),
        cmocka_unit_test(a_slow_kernel), cmocka_unit_test(wrong_bound), cmocka_unit_test(wrong_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

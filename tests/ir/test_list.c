/* Instruction lists: text there and back, messages, and the check against two independent judges (list_oracle.h) on
 * right lists, on lists with one fault planted, and on random ones. */
#include "list_oracle.h"

#include <inttypes.h>

/* A wiring with its arrays. */
typedef struct scene {
    ap_ctx *ctx;
    ap_wiring w;
    ap_name stage[16];
    ap_wire wire[16];
    ap_list list[16];
} scene;

static void scene_begin(scene *s, uint32_t nstages, int32_t microbatches)
{
    memset(s, 0, sizeof *s);
    s->ctx = ap_ctx_create();
    assert_non_null(s->ctx);
    s->w = (ap_wiring){
        .ctx = s->ctx, .microbatches = microbatches, .nstages = nstages, .stage = s->stage, .wire = s->wire};
    for (uint32_t i = 0; i < nstages; i++)
        s->stage[i] = ap_name_format(s->ctx, "s%" PRIu32, i);
}

static void add_wire(scene *s, const char *slot, uint32_t from, uint32_t to, int32_t from_depth, int32_t to_depth)
{
    assert_true(s->w.nwires < 16);
    uint32_t result = s->w.nwires;
    for (uint32_t i = 0; i < s->w.nwires; i++)
        if (s->wire[i].from == from && s->wire[i].slot == ap_name_make(s->ctx, slot))
            result = s->wire[i].result;
    s->wire[s->w.nwires++] = (ap_wire){.slot = ap_name_make(s->ctx, slot),
                                       .from = from,
                                       .result = result,
                                       .to = to,
                                       .from_depth = from_depth,
                                       .to_depth = to_depth};
}

static void push(scene *s, uint32_t stage, ap_act a)
{
    ap_vec_push(&s->ctx->arena, &s->list[stage].acts, a);
}

/* loop B { recv*; claim*; run; free*; send* } */
static void make_forward(scene *s)
{
    static const ap_act_kind order[] = {AP_ACT_RECV, AP_ACT_CLAIM, AP_ACT_RUN, AP_ACT_FREE, AP_ACT_SEND};
    for (uint32_t t = 0; t < s->w.nstages; t++) {
        s->list[t].acts.len = 0;
        push(s, t, (ap_act){.kind = AP_ACT_LOOP, .turns = s->w.microbatches});
        for (int o = 0; o < 5; o++) {
            if (order[o] == AP_ACT_RUN)
                push(s, t, (ap_act){.kind = AP_ACT_RUN});
            for (uint32_t i = 0; i < s->w.nwires && order[o] != AP_ACT_RUN; i++)
                if ((o == 1 || o == 4 ? s->wire[i].from : s->wire[i].to) == t)
                    push(s, t, (ap_act){.kind = order[o], .wire = i});
        }
        s->list[t].acts.at[0].body = s->list[t].acts.len - 1;
    }
}

static void unroll_list(scene *s, uint32_t t)
{
    steps u = unroll(&s->ctx->arena, &s->list[t]);
    s->list[t] = (ap_list){0};
    for (uint32_t i = 0; i < u.n; i++)
        push(s, t, (ap_act){.kind = u.at[i].kind, .wire = u.at[i].wire, .shift = u.at[i].k});
}

static const char *print_lists(const scene *s)
{
    ap_text t;
    ap_text_init(&t, &s->ctx->arena);
    ap_lists_print(&s->w, s->list, &t);
    return ap_text_str(&t);
}

static ap_status parse_lists(scene *s, const char *text)
{
    memset(s->list, 0, sizeof s->list);
    ap_lex l;
    ap_lex_init(&l, s->ctx, "t", text, strlen(text));
    AP_TRY(ap_lists_parse(&l, &s->w, s->list));
    return ap_lex_at_end(&l) ? AP_OK : ap_lex_error(&l, "expected the end");
}

static bool check_passes(scene *s)
{
    s->ctx->diags.len = 0;
    ap_status status = ap_lists_check(&s->w, s->list);
    assert_true(status == AP_OK || status == AP_ERR_MODEL);
    assert_int_equal(status == AP_OK, s->ctx->diags.len == 0);
    return status == AP_OK;
}

static void expect_good(scene *s)
{
    if (!check_passes(s))
        fail_msg("%s\n%s", messages(s->ctx), print_lists(s));
}

/* ---- text ---- */

static const char *const sample = "list @s0 {\n"
                                  "  claim %h 0 -> @s1\n"
                                  "  run 0\n"
                                  "  send %h 0 -> @s1\n"
                                  "  loop 3 {\n"
                                  "    claim %h k+1 -> @s1\n"
                                  "    run k+1\n"
                                  "    send %h k+1 -> @s1\n"
                                  "  }\n"
                                  "}\n"
                                  "list @s1 {\n"
                                  "  loop 4 {\n"
                                  "    recv %h k\n"
                                  "    claim %\"12\" k -> @s2\n"
                                  "    run k\n"
                                  "    free %h k\n"
                                  "    send %\"12\" k -> @s2\n"
                                  "  }\n"
                                  "}\n"
                                  "list @s2 {\n"
                                  "  loop 4 {\n"
                                  "    recv %\"12\" k\n"
                                  "    run k\n"
                                  "    free %\"12\" k\n"
                                  "  }\n"
                                  "}\n";

static void make_sample(scene *s)
{
    scene_begin(s, 3, 4);
    add_wire(s, "h", 0, 1, 1, 2);
    add_wire(s, "12", 1, 2, 2, 1);
}

static void test_text(void **state)
{
    (void)state;
    scene s;
    make_sample(&s);
    if (parse_lists(&s, sample) != AP_OK)
        fail_msg("%s", messages(s.ctx));
    assert_string_equal(print_lists(&s), sample);
    expect_good(&s);
    make_forward(&s);
    assert_int_equal(parse_lists(&s, print_lists(&s)), AP_OK);
    expect_good(&s);
    ap_ctx_release(s.ctx);
}

static bool check_edit(const char *text, size_t size)
{
    scene s;
    make_sample(&s);
    char *z = calloc(1, size + 1);
    memcpy(z, text, size);
    bool ok = parse_lists(&s, z) == AP_OK;
    if (ok) {
        const char *first = print_lists(&s);
        bool good = check_passes(&s);
        assert_int_equal(good, judge_by_rules(&s.w, s.list) == GOOD);
        assert_int_equal(parse_lists(&s, first), AP_OK);
        assert_string_equal(print_lists(&s), first);
    }
    free(z);
    ap_ctx_release(s.ctx);
    return ok;
}

static void test_edits(void **state)
{
    (void)state;
    uint64_t seed = 0x2545f4914f6cdd1du;
    char text[4096];
    int parsed = 0;
    for (int i = 0; i < 20000; i++) {
        size_t n = strlen(sample);
        memcpy(text, sample, n);
        for (size_t k = 1 + below(&seed, 3); k > 0; k--)
            mutate(text, &n, sizeof text, &seed);
        parsed += check_edit(text, n);
    }
    assert_true(parsed > 300);
}

static void test_messages(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"list @s9 { run 0 }", "no stage @s9"},
        {"list @s0 { run 0 } list @s0 { run 0 }", "a second list of stage @s0"},
        {"list @s0 { }", "is empty"},
        {"list @s0 { run 0 }", "stage @s1 has no list"},
        {"list @s0 { recv %h 0 }", "stage @s0 receives no %h"},
        {"list @s0 { send %h 0 -> @s2 }", "stage @s0 sends no %h to @s2"},
        {"list @s0 { loop 2 { loop 2 { run k } } }", "expected recv, claim, run, free, send"},
        {"list @s0 { loop 0 { run k } }", "turns"},
        {"list @s0 { run k }", "microbatch"},
        {"list @s0 { loop 2 { run 1 } }", "expected 'k', found '1'"},
    };
    int wrong = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        scene s;
        make_sample(&s);
        wrong += case_fails(s.ctx, cases[i].text, parse_lists(&s, cases[i].text), cases[i].want);
        ap_ctx_release(s.ctx);
    }
    assert_int_equal(wrong, 0);
}

/* One fault of each kind: stage, instruction and slot are named. */
static void test_check_messages(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *want;
    } cases[] = {
        {"    recv %h k\n", "",
         "stage @s1, instruction 3 (run k) at microbatch 0: reads a slot before it was received"},
        {"    claim %h k -> @s1\n    run k\n", "    run k\n    claim %h k -> @s1\n",
         "stage @s0, instruction 2 (run k) at microbatch 0: writes a slot that was not claimed"},
        {"    run k\n    free %h k\n", "    free %h k\n    run k\n",
         "stage @s1, instruction 4 (free %h k) at microbatch 0: freed before it was read"},
        {"    run k\n    send %h k -> @s1\n", "    send %h k -> @s1\n    run k\n",
         "stage @s0, instruction 3 (send %h k -> @s1) at microbatch 0: sent before it was written"},
        {"    free %h k\n", "", "stage @s1, instruction 2 (recv %h k) at microbatch 2: its slot was not freed"},
        {"    send %h k -> @s1\n", "",
         "stage @s1, instruction 2 (recv %h k) at microbatch 0: deadlock: it is never sent"},
        {"    free %h k\n", "    free %h k\n    free %h k\n", "slots are freed one after the other, each once"},
        {"    free %\"12\" k\n", "",
         "stage @s2, instruction 2 (recv %\"12\" k) at microbatch 1: its slot was not freed"},
        {"    recv %h k\n", "    recv %h k+1\n", "microbatches are received one after the other, each once"},
    };
    int wrong = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        scene s;
        make_sample(&s);
        make_forward(&s);
        const char *text = print_lists(&s), *at = strstr(text, cases[i].from);
        assert_non_null(at);
        ap_text t;
        ap_text_init(&t, &s.ctx->arena);
        ap_text_add_n(&t, text, (size_t)(at - text));
        ap_text_add(&t, cases[i].to);
        ap_text_add(&t, at + strlen(cases[i].from));
        assert_int_equal(parse_lists(&s, ap_text_str(&t)), AP_OK);
        wrong += case_fails(s.ctx, ap_text_str(&t), ap_lists_check(&s.w, s.list), cases[i].want);
        ap_ctx_release(s.ctx);
    }
    assert_int_equal(wrong, 0);
}

/* Records that no text gives. */
static void test_form(void **state)
{
    (void)state;
    scene s;
    make_sample(&s);
    make_forward(&s);
    expect_good(&s);
    s.wire[0].to_depth = 0;
    assert_false(check_passes(&s));
    s.wire[0].to_depth = 1;
    s.list[0].acts.at[0].body = 99;
    assert_false(check_passes(&s));
    s.list[0].acts.at[0].body = 3;
    s.list[0].acts.at[1].kind = AP_ACT_LOOP;
    assert_false(check_passes(&s));
    s.list[0].acts.at[1].kind = AP_ACT_CLAIM;
    expect_good(&s);
    s.list[0].acts.at[1].wire = 1; /* of another stage */
    assert_false(check_passes(&s));
    s.list[0].acts.at[1].wire = 7;
    assert_false(check_passes(&s));
    s.list[0].acts.at[1].wire = 0;
    s.list[0].acts.at[1].shift = INT32_MAX;
    assert_false(check_passes(&s));
    s.list[0].acts.at[1].shift = 0;
    s.wire[1].from = s.wire[0].from;
    s.wire[1].result = s.wire[0].result; /* one result, two depths */
    assert_false(check_passes(&s));
    expect_message(s.ctx, "shares its slots");
    ap_ctx_release(s.ctx);
}

/* ---- against the judges ---- */

/* Forward wires between random stages, chains and skips; a slot may go to several stages. */
static void random_scene(scene *s, uint64_t *seed, uint32_t max_stages, uint32_t max_wires, int32_t max_microbatches,
                         int max_depth)
{
    uint32_t nstages = 2 + (uint32_t)below(seed, max_stages - 1);
    scene_begin(s, nstages, 1 + (int32_t)below(seed, (size_t)max_microbatches));
    uint32_t want = 1 + (uint32_t)below(seed, max_wires);
    for (uint32_t tries = 0; tries < 4 * want && s->w.nwires < want; tries++) {
        uint32_t from = (uint32_t)below(seed, nstages - 1), to = from + 1 + (uint32_t)below(seed, nstages - 1 - from);
        char name[16];
        snprintf(name, sizeof name, "v%" PRIu32 ".%zu", from, below(seed, 2));
        bool twice = false;
        int32_t from_depth = 1 + (int32_t)below(seed, (size_t)max_depth);
        for (uint32_t i = 0; i < s->w.nwires; i++) {
            bool same = s->wire[i].slot == ap_name_make(s->ctx, name);
            twice = twice || (same && s->wire[i].to == to);
            from_depth = same ? s->wire[i].from_depth : from_depth;
        }
        if (!twice)
            add_wire(s, name, from, to, from_depth, 1 + (int32_t)below(seed, (size_t)max_depth));
    }
    make_forward(s);
}

/* An edit at the record level; lists stay well-formed. */
static void plant(scene *s, uint64_t *seed)
{
    uint32_t t = (uint32_t)below(seed, s->w.nstages);
    if (below(seed, 2))
        unroll_list(s, t);
    ap_list *l = &s->list[t];
    bool loop = l->acts.at[0].kind == AP_ACT_LOOP;
    uint32_t lo = loop ? 1 : 0, n = l->acts.len - lo;
    uint32_t i = lo + (uint32_t)below(seed, n), j = lo + (uint32_t)below(seed, n);
    ap_act a = l->acts.at[i], b = l->acts.at[j];
    switch (below(seed, 6)) {
    case 0: /* dropped */
        if (n == 1)
            break;
        memmove(&l->acts.at[i], &l->acts.at[i + 1], (l->acts.len - i - 1) * sizeof a);
        l->acts.len--;
        break;
    case 1: /* swapped with any */
        l->acts.at[i] = b;
        l->acts.at[j] = a;
        break;
    case 2: /* with its neighbour */
        j = i + 1 < l->acts.len ? i + 1 : i;
        l->acts.at[i] = l->acts.at[j];
        l->acts.at[j] = a;
        break;
    case 3: /* twice */
        push(s, t, a);
        break;
    case 4: /* of another microbatch */
        l->acts.at[i].shift += below(seed, 2) ? 1 : -1;
        break;
    default: /* of another kind or slot */
        l->acts.at[i].kind = b.kind;
        l->acts.at[i].wire = b.wire;
        break;
    }
    if (loop)
        l->acts.at[0].body = l->acts.len - 1;
}

/* Moves acts of one list around, so that lists go ahead of others: receives and claims earlier, sends later. */
static void loosen(scene *s, uint64_t *seed)
{
    uint32_t t = (uint32_t)below(seed, s->w.nstages);
    unroll_list(s, t);
    ap_list *l = &s->list[t];
    for (size_t moves = 1 + below(seed, 6); moves > 0; moves--) {
        uint32_t i = (uint32_t)below(seed, l->acts.len), j = (uint32_t)below(seed, l->acts.len);
        ap_act a = l->acts.at[i];
        bool early = a.kind == AP_ACT_RECV || a.kind == AP_ACT_CLAIM;
        if (a.kind == AP_ACT_RUN || (early ? j >= i : j <= i))
            continue;
        if (early)
            memmove(&l->acts.at[j + 1], &l->acts.at[j], (i - j) * sizeof a);
        else
            memmove(&l->acts.at[i], &l->acts.at[i + 1], (j - i) * sizeof a);
        l->acts.at[j] = a;
    }
}

/* The order in which slots are claimed or freed is a rule of ours: with several slots other orders can work too. */
static bool is_rule_of_order(ap_ctx *ctx)
{
    return strstr(messages(ctx), "one after the other") != NULL;
}

typedef struct tally {
    int good, bad, by_order;
} tally;

static void compare(scene *s, tally *t)
{
    bool good = check_passes(s);
    verdict rules = judge_by_rules(&s->w, s->list), explored = judge_by_exploring(&s->w, s->list);
    assert_int_not_equal(explored, TOO_MANY);
    if (good != (rules == GOOD) || (good && explored != GOOD) ||
        (!good && explored == GOOD && !is_rule_of_order(s->ctx)))
        fail_msg("check %d, rules %d, explorer %d (%s)\n%s", good, rules == GOOD, explored == GOOD, messages(s->ctx),
                 print_lists(s));
    t->good += good;
    t->bad += !good;
    t->by_order += !good && explored == GOOD;
}

static void test_explored(void **state)
{
    (void)state;
    uint64_t seed = 88172645463325252u;
    tally right = {0}, planted = {0}, loose = {0};
    for (int i = 0; i < 1500; i++) {
        scene s;
        random_scene(&s, &seed, 3, 3, 3, 2);
        if (i % 10 == 0)
            compare(&s, &right);
        if (i % 3)
            plant(&s, &seed);
        else
            loosen(&s, &seed);
        compare(&s, i % 3 ? &planted : &loose);
        ap_ctx_release(s.ctx);
    }
    assert_int_equal(right.bad, 0);
    assert_true(planted.bad > 600 && planted.good > 20);
    assert_true(loose.bad > 20 && loose.good > 100);
}

/* Every single fault of two kinds in one pipeline with a skip: each instruction dropped, each one doubled. */
static void test_every_fault(void **state)
{
    (void)state;
    for (int fault = 0; fault < 2; fault++)
        for (uint32_t t = 0; t < 4; t++)
            for (uint32_t i = 0;; i++) {
                scene s;
                scene_begin(&s, 4, 3);
                add_wire(&s, "a", 0, 1, 2, 2);
                add_wire(&s, "a", 0, 3, 2, 3);
                add_wire(&s, "b", 1, 2, 1, 2);
                add_wire(&s, "c", 2, 3, 2, 1);
                make_forward(&s);
                expect_good(&s);
                unroll_list(&s, t);
                ap_list *l = &s.list[t];
                bool end = i == l->acts.len;
                if (!end && fault == 0) {
                    memmove(&l->acts.at[i], &l->acts.at[i + 1], (l->acts.len - i - 1) * sizeof l->acts.at[0]);
                    l->acts.len--;
                } else if (!end) {
                    push(&s, t, l->acts.at[i]);
                    memmove(&l->acts.at[i + 1], &l->acts.at[i], (l->acts.len - 1 - i) * sizeof l->acts.at[0]);
                }
                if (!end)
                    assert_false(check_passes(&s));
                ap_ctx_release(s.ctx);
                if (end)
                    break;
            }
}

static void test_larger(void **state)
{
    (void)state;
    uint64_t seed = 0x9e3779b97f4a7c15u;
    int good = 0, bad = 0;
    for (int i = 0; i < 6000; i++) {
        scene s;
        random_scene(&s, &seed, 8, 12, 7, 3);
        expect_good(&s);
        if (i % 2)
            plant(&s, &seed);
        for (size_t n = i % 2 ? 0 : 1 + below(&seed, 3); n > 0; n--)
            loosen(&s, &seed);
        bool passes = check_passes(&s);
        if (passes != (judge_by_rules(&s.w, s.list) == GOOD))
            fail_msg("check says %d (%s)\n%s", passes, messages(s.ctx), print_lists(&s));
        good += passes;
        bad += !passes;
        ap_ctx_release(s.ctx);
    }
    assert_true(good > 500 && bad > 2000);
}

/* Two microbatches ahead need two slots: with one fewer at either end there is a deadlock. */
static void test_depth(void **state)
{
    (void)state;
    for (int32_t depth = 1; depth <= 3; depth++)
        for (int end = 0; end < 2; end++) {
            scene s;
            scene_begin(&s, 2, 4);
            add_wire(&s, "h", 0, 1, end ? 4 : depth, end ? depth : 4);
            make_forward(&s);
            uint32_t t = end ? 1 : 0;
            ap_act early = {.kind = end ? AP_ACT_RECV : AP_ACT_CLAIM}, run = {.kind = AP_ACT_RUN};
            ap_act late = {.kind = end ? AP_ACT_FREE : AP_ACT_SEND};
            s.list[t].acts.len = 0;
            push(&s, t, early); /* 0 */
            push(&s, t, (ap_act){.kind = AP_ACT_LOOP, .turns = 3, .body = 3});
            early.shift = 1;
            push(&s, t, early);
            push(&s, t, run);
            push(&s, t, late);
            run.shift = late.shift = 3;
            push(&s, t, run);
            push(&s, t, late);
            assert_int_equal(check_passes(&s), depth >= 2);
            if (depth < 2)
                expect_message(s.ctx, end ? "its slot was not freed" : "deadlock: what is in the slot");
            ap_ctx_release(s.ctx);
        }
}

/* Long lists are replayed in time that grows with their length only. */
static void test_long(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s, 16, 8192);
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o"};
    for (uint32_t i = 0; i + 1 < 16; i++)
        add_wire(&s, names[i], i, i + 1, 2, 2);
    make_forward(&s);
    expect_good(&s);
    ap_ctx_release(s.ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),           cmocka_unit_test(test_edits),  cmocka_unit_test(test_messages),
        cmocka_unit_test(test_check_messages), cmocka_unit_test(test_form),   cmocka_unit_test(test_explored),
        cmocka_unit_test(test_every_fault),    cmocka_unit_test(test_larger), cmocka_unit_test(test_depth),
        cmocka_unit_test(test_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

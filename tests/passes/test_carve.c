/* Carving: the pieces, each verified and evaluated by itself on what the pieces before it made, give what the whole
 * gives; nothing is sent that nobody reads or that is there for nothing; a small part of a large module is cheap. */
#include "tests/passes/random_module.h"

#include "ir/op.h"
#include "passes/pipe/carve.h"

/* ---- evaluation of pieces ---- */

typedef struct store { /* per value of the whole: what it is, once a piece has made it */
    ap_tensor *value;
    bool *there;
} store;

static void run_piece(ap_ctx *ctx, const ap_carved *p, store *s)
{
    const ap_func_info *f = &p->m->funcs.at[0];
    ap_tensor *in = AP_NEW_ARRAY(&ctx->arena, ap_tensor, f->narguments);
    for (uint32_t i = 0; i < f->narguments; i++) {
        assert_true(s->there[p->argument[i]]);
        in[i] = s->value[p->argument[i]];
    }
    ap_tensor *out = outputs_of(ctx, p->m, in);
    for (uint32_t i = 0; i < f->nresults; i++) {
        s->value[p->result[i]] = out[i];
        s->there[p->result[i]] = true;
    }
}

static bool reads(const ap_carved *p, ap_value v)
{
    for (uint32_t i = 0; i < p->m->funcs.at[0].narguments; i++)
        if (p->argument[i] == v)
            return true;
    return false;
}

/* Slots have one name on both sides; each has a reader. */
static void check_slots(ap_ctx *ctx, const ap_module *whole, const ap_carver *c, const ap_carved *piece, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        const ap_func_info *f = &piece[k].m->funcs.at[0];
        for (uint32_t i = 0; i < f->narguments; i++) {
            assert_int_equal(f->argument_slot[i], ap_value_at(whole, piece[k].argument[i])->kind == AP_VALUE_RESULT);
            if (f->argument_slot[i])
                assert_int_equal(ap_value_at(piece[k].m, f->argument[i])->name,
                                 ap_carver_slot_name(c, piece[k].argument[i]));
        }
        for (uint32_t i = 0; i < f->nresults; i++) {
            if (!f->result_slot[i])
                continue;
            bool read = false;
            for (uint32_t later = k + 1; later < n; later++)
                read = read || reads(&piece[later], piece[k].result[i]);
            assert_true(read);
            assert_int_equal(f->result_name[i], ap_carver_slot_name(c, piece[k].result[i]));
        }
        for (ap_symbol s = 0; s < piece[k].m->symbols.len; s++)
            assert_true(ap_module_count_uses(piece[k].m, &ctx->arena)[piece[k].m->symbols.at[s].value] > 0);
    }
}

/* The outputs that pieces write, by what the whole returns; each by one piece. */
static void check_outputs(const ap_module *whole, const ap_carved *piece, uint32_t n, const store *s,
                          const ap_tensor *expected)
{
    const ap_func_info *f = &whole->funcs.at[0];
    const ap_block_info *b = ap_block_at(whole, f->body);
    const ap_node_info *ret = ap_node_at(whole, b->nodes.at[b->nodes.len - 1]);
    uint32_t written = 0;
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t i = 0; i < piece[k].m->funcs.at[0].nresults; i++)
            written += !piece[k].m->funcs.at[0].result_slot[i];
    assert_int_equal(written, f->nresults);
    for (uint32_t i = 0; i < f->nresults; i++) {
        assert_true(s->there[ret->in[i]]);
        assert_same(1, &expected[i], &s->value[ret->in[i]], 0);
    }
}

static void cut_and_compare(ap_ctx *ctx, const char *text, uint64_t *state, uint32_t pieces)
{
    ap_module *m = module_of(ctx, text);
    assert_verifies(ctx, m);
    ap_tensor *in = draw_inputs(ctx, m, state), *expected = outputs_of(ctx, m, in);
    ap_carver *c = ap_carver_create(&ctx->arena, m);
    store s = {AP_NEW_ARRAY(&ctx->arena, ap_tensor, m->values.len), AP_NEW_ARRAY(&ctx->arena, bool, m->values.len)};
    for (uint32_t i = 0; i < m->funcs.at[0].narguments; i++) {
        s.value[m->funcs.at[0].argument[i]] = in[i];
        s.there[m->funcs.at[0].argument[i]] = true;
    }
    uint32_t n = ap_carver_nnodes(c), first = 0;
    ap_carved *piece = AP_NEW_ARRAY(&ctx->arena, ap_carved, pieces);
    for (uint32_t k = 0; k < pieces; k++) {
        uint32_t last = k + 1 == pieces ? n : first + draw(state, n - first + 1);
        ap_carve(c, &ctx->arena, first, last, &piece[k]);
        assert_verifies(ctx, piece[k].m);
        ap_module *again = module_of(ctx, text_of(ctx, piece[k].m));
        assert_string_equal(text_of(ctx, again), text_of(ctx, piece[k].m));
        run_piece(ctx, &piece[k], &s);
        first = last;
    }
    check_slots(ctx, m, c, piece, pieces);
    check_outputs(m, piece, pieces, &s, expected);
    /* The whole as one piece is the whole; carving changes nothing. */
    ap_carved all;
    ap_carve(c, &ctx->arena, 0, n, &all);
    assert_verifies(ctx, all.m);
    if (all.m->funcs.at[0].narguments == m->funcs.at[0].narguments)
        assert_string_equal(text_of(ctx, all.m), text_of(ctx, m));
}

/* "%v12" is a name, "%12" none. */
static const char *without_names(ap_ctx *ctx, const char *text)
{
    char *out = ap_arena_strdup(&ctx->arena, text), *to = out;
    for (const char *s = text; *s; s++) {
        *to++ = *s;
        if (s[0] == '%' && s[1] == 'v')
            s++;
    }
    *to = 0;
    return out;
}

static void random_pieces(void **unused)
{
    (void)unused;
    uint64_t state = 5;
    for (int round = 0; round < 300; round++) {
        ap_ctx *ctx = ap_ctx_create();
        maker k = {.state = &state, .views = round % 2, .tied = round % 3 > 0};
        const char *text = make_module_with(ctx, &k, 4 + round % 20);
        cut_and_compare(ctx, round % 5 ? text : without_names(ctx, text), &state, 1 + (uint32_t)round % 5);
        ap_ctx_release(ctx);
    }
}

/* ---- what is sent, by hand ---- */

static const char *piece_of(ap_ctx *ctx, const char *text, uint32_t first, uint32_t last)
{
    ap_module *m = module_of(ctx, text);
    ap_carved piece;
    ap_carve(ap_carver_create(&ctx->arena, m), &ctx->arena, first, last, &piece);
    assert_verifies(ctx, piece.m);
    return text_of(ctx, piece.m);
}

/* The mask is made again, the table's view too; the output that is read later on is a slot beside; %h skips a stage. */
static void sends_what_must_be_sent(void **unused)
{
    (void)unused;
    const char *text =
        "state normal\nparam @w : f32[4,4]\nfunc @main(%x: f32[4,4]) -> \"h\" f32[4,4], \"y\" f32[4,4] {\n"
        "  %i = iota dim 0 : f32[4,4]\n"
        "  %c = constant splat 0x1p+1 : f32[]\n"
        "  %m = mul %i, %c : f32[4,4]\n"
        "  %t = view @w {ab->ba} : f32[4,4]\n"
        "  %h = contract %x, %t {mk,kn->mn} : f32[4,4]\n"
        "  %a = add %h, %m : f32[4,4]\n"
        "  %b = contract %a, %t {mk,kn->mn} : f32[4,4]\n"
        "  %d = add %b, %h : f32[4,4]\n"
        "  %y = mul %d, %m : f32[4,4]\n"
        "  ret %h, %y }\n";
    ap_ctx *ctx = ap_ctx_create();
    assert_string_equal(
        piece_of(ctx, text, 0, 5),
        "state normal\nparam @w : f32[4,4]\nfunc @main(%x: f32[4,4]) -> \"h\" f32[4,4], slot \"h\" f32[4,4] {\n"
        "  %t = view @w {ab->ba} : f32[4,4]\n"
        "  %h = contract %x, %t {mk,kn->mn} : f32[4,4]\n"
        "  ret %h, %h }\n");
    assert_string_equal(piece_of(ctx, text, 5, 7),
                        "state normal\nparam @w : f32[4,4]\nfunc @main(slot %h: f32[4,4]) -> slot \"b\" f32[4,4] {\n"
                        "  %i = iota dim 0 : f32[4,4]\n"
                        "  %c = constant splat 0x1p+1 : f32[]\n"
                        "  %m = mul %i, %c : f32[4,4]\n"
                        "  %a = add %h, %m : f32[4,4]\n"
                        "  %t = view @w {ab->ba} : f32[4,4]\n"
                        "  %b = contract %a, %t {mk,kn->mn} : f32[4,4]\n"
                        "  ret %b }\n");
    assert_string_equal(piece_of(ctx, text, 7, 9),
                        "state normal\nfunc @main(slot %h: f32[4,4], slot %b: f32[4,4]) -> \"y\" f32[4,4] {\n"
                        "  %d = add %b, %h : f32[4,4]\n"
                        "  %i = iota dim 0 : f32[4,4]\n"
                        "  %c = constant splat 0x1p+1 : f32[]\n"
                        "  %m = mul %i, %c : f32[4,4]\n"
                        "  %y = mul %d, %m : f32[4,4]\n"
                        "  ret %y }\n");
    ap_ctx_release(ctx);
}

/* A scale that is made of two small parameters is made where it is read; one of a large table is sent. */
static void small_work_on_symbols_is_copied(void **unused)
{
    (void)unused;
    const char *text = "state normal\nparam @v : f32[8]\nparam @g : f32[8]\nparam @t : f32[600,512]\n"
                       "func @main(%x: f32[4,8], %y: f32[600,512]) -> \"z\" f32[4,8], \"u\" f32[600,512] {\n"
                       "  %r = rsqrt @v : f32[8]\n  %s = mul %r, @g : f32[8]\n"
                       "  %e = exp @t : f32[600,512]\n  %a = mul %x, %s : f32[4,8]\n  %b = mul %y, %e : f32[600,512]\n"
                       "  %z = mul %a, %s : f32[4,8]\n  %u = mul %b, %e : f32[600,512]\n  ret %z, %u }\n";
    ap_ctx *ctx = ap_ctx_create();
    assert_string_equal(
        piece_of(ctx, text, 5, 7),
        "state normal\nparam @v : f32[8]\nparam @g : f32[8]\n"
        "func @main(slot %e: f32[600,512], slot %a: f32[4,8], slot %b: f32[600,512]) -> \"z\" f32[4,8], "
        "\"u\" f32[600,512] {\n  %r = rsqrt @v : f32[8]\n  %s = mul %r, @g : f32[8]\n"
        "  %z = mul %a, %s : f32[4,8]\n  %u = mul %b, %e : f32[600,512]\n  ret %z, %u }\n");
    ap_ctx_release(ctx);
}

/* Outputs that no node makes, and pieces of nothing. */
static void odd_outputs(void **unused)
{
    (void)unused;
    const char *text = "state normal\nparam @w : f32[2]\nfunc @main(%x: f32[2]) -> f32[2], f32[2], f32[2] {\n"
                       "  %k = constant splat 0x1p+1 : f32[2]\n"
                       "  %y = relu %x : f32[2]\n"
                       "  ret %x, @w, %k }\n";
    ap_ctx *ctx = ap_ctx_create();
    assert_string_equal(piece_of(ctx, text, 0, 1),
                        "state normal\nparam @w : f32[2]\nfunc @main(%x: f32[2]) -> f32[2], f32[2], f32[2] {\n"
                        "  %k = constant splat 0x1p+1 : f32[2]\n"
                        "  ret %x, @w, %k }\n");
    assert_string_equal(piece_of(ctx, text, 1, 2), "state normal\nfunc @main(%x: f32[2]) {\n"
                                                   "  %y = relu %x : f32[2]\n"
                                                   "  ret }\n");
    assert_string_equal(piece_of(ctx, text, 2, 2), "state normal\nfunc @main() {\n  ret }\n");
    ap_ctx_release(ctx);
}

/* What a small part takes does not depend on the size of the whole: counted in bytes. */
static void small_parts_are_cheap(void **unused)
{
    (void)unused;
    size_t bytes[2];
    for (int i = 0; i < 2; i++) {
        ap_ctx *ctx = ap_ctx_create();
        ap_text t;
        ap_text_init(&t, &ctx->arena);
        ap_text_add(&t, "state normal\nfunc @main(%x: f32[4]) -> f32[4] {\n  %0 = relu %x : f32[4]\n");
        int n = i ? 4000 : 40;
        for (int k = 1; k < n; k++)
            ap_text_addf(&t, "  %%%d = relu %%%d : f32[4]\n", k, k - 1);
        ap_text_addf(&t, "  ret %%%d }\n", n - 1);
        ap_carver *c = ap_carver_create(&ctx->arena, module_of(ctx, ap_text_str(&t)));
        ap_arena arena;
        ap_carved piece;
        ap_arena_init(&arena, ctx->arena.out_of_memory, ctx->arena.user);
        ap_carve(c, &arena, 10, 30, &piece);
        bytes[i] = arena.bytes;
        assert_int_equal(piece.m->nodes.len, 21);
        ap_arena_deinit(&arena);
        ap_ctx_release(ctx);
    }
    assert_int_equal(bytes[0], bytes[1]);
    assert_true(bytes[0] < 64 * 1024);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_pieces),
        cmocka_unit_test(sends_what_must_be_sent),
        cmocka_unit_test(small_work_on_symbols_is_copied),
        cmocka_unit_test(odd_outputs),
        cmocka_unit_test(small_parts_are_cheap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

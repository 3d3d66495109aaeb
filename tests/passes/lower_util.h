/* What the tests of lowering share: comparing a lowered program with its module, modules that cover every operator, and
 * random strategies for every node of a module, with reshards where they meet. */
#ifndef AP_TESTS_PASSES_LOWER_UTIL_H
#define AP_TESTS_PASSES_LOWER_UTIL_H

#include "tests/passes/plan_util.h"

#include "ir/physical.h"
#include "ir/program.h"
#include "passes/batch.h"
#include "passes/pass.h"

/* ---- the comparison ---- */

static inline ap_tensor *inputs_of(ap_ctx *ctx, const ap_module *m, uint64_t *state)
{
    ap_tensor *in = draw_inputs(ctx, m, state);
    for (uint32_t i = 0; i < m->funcs.at[0].narguments; i++) {
        for (int64_t k = 0; k < in[i].count && !ap_dtype_is_float(in[i].dtype); k++)
            in[i].at[k].i = draw(state, in[i].dtype == AP_BOOL ? 2 : 3);
        for (int64_t k = 0; k < in[i].count && ap_dtype_is_float(in[i].dtype); k++)
            in[i].at[k] = ap_scalar_round(in[i].dtype, in[i].at[k]);
    }
    return in;
}

static const char *local_text(ap_ctx *ctx, const ap_local *p)
{
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    ap_local_print(p, &t);
    return ap_text_str(&t);
}

static inline ap_local *assert_lowers(ap_ctx *ctx, ap_module *m, const ap_tensor *in, double tolerance)
{
    ap_local *p = NULL;
    uint64_t rounds = (uint64_t)m->values.len * 7 + m->nodes.len;
    ap_tensor *want = outputs_of(ctx, m, in), *got = AP_NEW_ARRAY(&ctx->arena, ap_tensor, m->funcs.at[0].nresults);
    ap_status s = ap_lower_local(ctx, m, "test", &p);
    if (s != AP_OK)
        print_error("%s\n", text_of(ctx, m));
    assert_ok(ctx, s);
    s = ap_local_verify(p);
    if (s == AP_OK && draw(&rounds, 2)) /* as a program every rank has outputs of its own, and boxes are collected */
        s = ap_program_eval(ap_program_of_local(p), &ctx->arena, in, got);
    else if (s == AP_OK)
        s = ap_local_eval(p, &ctx->arena, in, got);
    bool same = s == AP_OK;
    for (uint32_t i = 0; same && i < m->funcs.at[0].nresults; i++) {
        double diff, scale;
        ap_tensor_compare(&got[i], &want[i], &diff, &scale);
        same = diff <= tolerance * (scale > 1 ? scale : 1);
        if (!same)
            print_error("result %u differs by %g of %g\n", i, diff, scale);
    }
    if (!same)
        print_error("%s\n%s\n", text_of(ctx, m), local_text(ctx, p));
    assert_ok(ctx, s);
    assert_true(same);
    return p;
}

/* ---- modules ---- */

static const char *const models[] = {
    /* chains, broadcasts, several uses */
    "func @f(%x: f32[4,6,8], %b: f32[8], %s: f32[4,1,8]) -> f32[4,6,8], f32[4,6,8] {\n"
    "  %c = constant splat 0.5 : f32[]\n"
    "  %0 = add %x, %b : f32[4,6,8]\n"
    "  %1 = mul %0, %c : f32[4,6,8]\n"
    "  %2 = erf %0 : f32[4,6,8]\n"
    "  %3 = mul %1, %2 : f32[4,6,8]\n"
    "  %4 = sub %3, %s : f32[4,6,8]\n"
    "  %5 = tanh %4 : f32[4,6,8]\n"
    "  ret %5, %3 }\n",
    /* transposes and broadcasts by views */
    "func @f(%x: f32[4,6], %y: f32[6,4], %z: f32[4]) -> f32[6,4], f32[4,6,4], f32[1,4,6] {\n"
    "  %0 = view %x {ab->ba} : f32[6,4]\n"
    "  %1 = add %0, %y : f32[6,4]\n"
    "  %2 = exp %1 : f32[6,4]\n"
    "  %3 = view %2 {ab->cab} : f32[4,6,4]\n"
    "  %4 = mul %3, %z : f32[4,6,4]\n"
    "  %5 = view %1 {ab->1ba} : f32[1,4,6]\n"
    "  ret %2, %4, %5 }\n",
    /* softmax and a mask of its own */
    "func @f(%x: f32[4,6,8], %k: i64[4,8]) -> f32[4,6,8] {\n"
    "  %o = constant splat 1 : i64[]\n"
    "  %p = eq %k, %o : bool[4,8]\n"
    "  %q = view %p {bt->b1t} : bool[4,1,8]\n"
    "  %n = constant splat -3 : f32[]\n"
    "  %y = select %q, %x, %n : f32[4,6,8]\n"
    "  %m = reduce max %y {bst->bs1} : f32[4,6,1]\n"
    "  %d = sub %y, %m : f32[4,6,8]\n"
    "  %e = exp %d : f32[4,6,8]\n"
    "  %z = reduce sum %e {bst->bs1} : f32[4,6,1]\n"
    "  %r = div %e, %z : f32[4,6,8]\n"
    "  ret %r }\n",
    /* residual and normalisation; the sum is used twice */
    "param @g : f32[8] data([1,2,3,4,5,6,7,8])\n"
    "param @h : f32[8] data([1,-2,3,-4,5,-6,7,-8])\n"
    "func @f(%x: f32[4,6,8], %y: f32[4,6,8]) -> f32[4,6,8], f32[4,6,8] {\n"
    "  %s = add %x, %y : f32[4,6,8]\n"
    "  %c = constant splat 0.125 : f32[]\n"
    "  %t = reduce sum %s {bsk->bs1} : f32[4,6,1]\n"
    "  %m = mul %t, %c : f32[4,6,1]\n"
    "  %d = sub %s, %m : f32[4,6,8]\n"
    "  %q = mul %d, %d : f32[4,6,8]\n"
    "  %u = reduce sum %q {bsk->bs1} : f32[4,6,1]\n"
    "  %v = mul %u, %c : f32[4,6,1]\n"
    "  %w = rsqrt %v : f32[4,6,1]\n"
    "  %n = mul %d, %w : f32[4,6,8]\n"
    "  %o = mul %n, @g : f32[4,6,8]\n"
    "  %r = add %o, @h : f32[4,6,8]\n"
    "  %a = add %s, %r : f32[4,6,8]\n"
    "  ret %a, %r }\n",
    /* reductions of all kinds, over any letters */
    "func @f(%x: f32[4,6,8], %i: i64[4,8]) -> f32[6], f32[4,8], f32[], i64[4,6], i64[4,8], f32[4,1,1], i64[1,8], "
    "f32[4,6] {\n"
    "  %0 = reduce sum %x {abc->b} : f32[6]\n"
    "  %1 = reduce max %x {abc->ac} : f32[4,8]\n"
    "  %2 = reduce min %x {abc->} : f32[]\n"
    "  %3 = reduce argmax %x {abc->ab} : i64[4,6]\n"
    "  %4 = reduce argmin %x {abc->ac} : i64[4,8]\n"
    "  %5 = reduce prod %x {abc->a11} : f32[4,1,1]\n"
    "  %6 = reduce sum %i {ab->1b} : i64[1,8]\n"
    "  %7 = exp %x : f32[4,6,8]\n"
    "  %8 = reduce sum %7 {abc->ab} : f32[4,6]\n"
    "  ret %0, %1, %2, %3, %4, %5, %6, %8 }\n",
    /* gathers: rows, batch letters, an indexed letter in the middle; their sum */
    "param @w : f32[4,8] "
    "data([1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32])\n"
    "func @f(%i: i64[4,6], %j: i32[4,6], %x: f32[4,6,4]) -> f32[4,6,8], f32[4,4,6,4], f32[4,6] {\n"
    "  %0 = gather @w, %i {vh,bs->bsh} : f32[4,6,8]\n"
    "  %1 = gather @w, %j {vh,bs->bsh} : f32[4,6,8]\n"
    "  %2 = add %0, %1 : f32[4,6,8]\n"
    "  %3 = gather %x, %i {avc,bs->absc} : f32[4,4,6,4]\n"
    "  %4 = gather %x, %i {bvs,bt->bts} : f32[4,6,4]\n"
    "  %5 = reduce sum %4 {bts->bt} : f32[4,6]\n"
    "  ret %2, %3, %5 }\n",
    /* convolutions and their steps; depthwise; side by side; a sum with what only it reads; transposed */
    "param @b : f32[6] data([1,-2,3,-4,5,-6])\n"
    "func @f(%x: f32[2,1,4,5,6], %w: f32[1,6,4,3,3], %d: f32[6,1,1,3,3], %p: f32[1,4,6,1,1], %q: f32[1,4,4,1,1], "
    "%t: f32[2,2,3,2,2], %g: f32[2,2.3,4]) -> f32[2,6,1,3,3], f32[2,1,10,5,6], f32[2,1,4,5,6], f32[2,2,3,8,5], "
    "f32[2,1,3,4] {\n"
    "  %0 = conv %x, %w [1:1,1:1] : f32[2,1,6,5,6]\n"
    "  %c = view @b {a->a11} : f32[6,1,1]\n"
    "  %1 = add %0, %c : f32[2,1,6,5,6]\n"
    "  %2 = relu %1 : f32[2,1,6,5,6]\n"
    "  %3 = view %2 {a1bcd->ab1cd} : f32[2,6,1,5,6]\n"
    "  %4 = conv %3, %d [1:1 stride 2,1:1 stride 2] : f32[2,6,1,3,3]\n"
    "  %5 = conv %2, %p [-,-] : f32[2,1,4,5,6]\n"
    "  %6 = add %x, %5 : f32[2,1,4,5,6]\n"
    "  %m = constant splat 3 : f32[]\n"
    "  %7 = min %6, %m : f32[2,1,4,5,6]\n"
    "  %8 = concat %7, %2 dim 2 : f32[2,1,10,5,6]\n"
    "  %9 = conv %x, %q [-,-] : f32[2,1,4,5,6]\n"
    "  %10 = conv %9, %q [-,-] : f32[2,1,4,5,6]\n"
    "  %11 = mul %10, %m : f32[2,1,4,5,6]\n"
    "  %12 = add %9, %11 : f32[2,1,4,5,6]\n"
    "  %x2 = view %x {a1bcd->1abcd} : f32[1,2,4,5,6]\n"
    "  %y2 = slice %x2 [-,-,0:3,0:4,0:3] : f32[1,2,3,4,3]\n"
    "  %y3 = view %y2 {1abcd->a1bcd} : f32[2,1,3,4,3]\n"
    "  %y4 = concat %y3, %y3 dim 1 : f32[2,2,3,4,3]\n"
    "  %w2 = concat %t, %t dim 1 : f32[2,2.2,3,2,2]\n"
    "  %w3 = slice %w2 [-,0:1.-,-,-,-] : f32[2,2,3,2,2]\n"
    "  %w4 = view %w3 {abcde->acbde} : f32[2,3,2,2,2]\n"
    "  %w5 = view %w4 {abcde->acbde} : f32[2,2,3,2,2]\n"
    "  %13 = conv %y4, %w5 [1:1 hole 2 flip,0:1 hole 2 flip] : f32[2,2,2,8,5]\n"
    "  %14 = concat %13, %13 dim 2 : f32[2,2,2.2,8,5]\n"
    "  %15 = slice %14 [-,-,0:1.-,-,-] : f32[2,2,2,8,5]\n"
    "  %16 = pad %15, %m [-,-,0:1,-,-] : f32[2,2,3,8,5]\n"
    "  %g2 = view %g {a(bc)d->1d(bc)a} : f32[1,4,2.3,2]\n"
    "  %g3 = slice %g2 [-,0:3,-,-] : f32[1,3,2.3,2]\n"
    "  %g4 = view %g {a(bc)d->a1(bc)d} : f32[2,1,2.3,4]\n"
    "  %g5 = slice %g3 [-,-,-,0:1] : f32[1,3,2.3,1]\n"
    "  %17 = conv %g4, %g5 [-] : f32[2,1,3,4]\n"
    "  ret %4, %8, %12, %16, %17 }\n",
    /* slices, pads, concats, reshapes */
    "func @f(%x: f32[4,6,8], %y: f32[4,2,8], %p: f32[]) -> f32[4,8,8], f32[4,3,8], f32[4,9,10], f32[24,8], f32[4,6,8] "
    "{\n"
    "  %e = exp %x : f32[4,6,8]\n"
    "  %0 = concat %e, %y dim 1 : f32[4,8,8]\n"
    "  %1 = slice %x [-,1:7:2,-] : f32[4,3,8]\n"
    "  %2 = slice %0 [-,7:-1:-1,-] : f32[4,8,8]\n"
    "  %3 = add %2, %0 : f32[4,8,8]\n"
    "  %4 = pad %x, %p [-,1:2,2:0] : f32[4,9,10]\n"
    "  %5 = slice %e [-,2:3,-] : f32[4,1,8]\n"
    "  %6 = sub %e, %5 : f32[4,6,8]\n"
    "  %7 = view %6 {abc->bac} : f32[6,4,8]\n"
    "  %8 = reshape %7 : f32[24,8]\n"
    "  %9 = slice %8 [23:-1:-1,-] : f32[24,8]\n"
    "  %10 = neg %9 : f32[24,8]\n"
    "  ret %3, %1, %4, %10, %6 }\n",
    /* concats of whole factors, of slices, of one value with itself */
    "func @f(%x: f32[6,4.2], %y: f32[6,4.2]) -> f32[6,3.4.2], f32[6,4.2], f32[12,4.2], f32[6,4.4] {\n"
    "  %e = exp %x : f32[6,4.2]\n"
    "  %0 = concat %e, %y, %e dim 1 : f32[6,3.4.2]\n"
    "  %1 = slice %0 [-,1:2.-.-] : f32[6,4.2]\n"
    "  %2 = mul %1, %x : f32[6,4.2]\n"
    "  %a = slice %x [-,-.0:1] : f32[6,4]\n"
    "  %b = slice %x [-,-.1:2] : f32[6,4]\n"
    "  %n = neg %b : f32[6,4]\n"
    "  %r = concat %n, %a dim 1 : f32[6,8]\n"
    "  %s = reshape %r : f32[6,4.2]\n"
    "  %t = add %s, %y : f32[6,4.2]\n"
    "  %3 = concat %t, %e dim 0 : f32[12,4.2]\n"
    "  %c = constant splat 2 : f32[6,4]\n"
    "  %4 = concat %a, %b, %n, %c dim 1 : f32[6,4.4]\n"
    "  ret %0, %2, %3, %4 }\n",
    /* products: plain, batched, transposed, fused projections, outer, dot, integers */
    "param @w : f32[8,3.2.4] data(splat 0.25)\n"
    "func @f(%x: f32[4,6,8], %y: f32[4,8,6], %v: f32[8], %i: i64[4,8], %j: i64[8,2]) -> f32[4,6,3.2.4], f32[4,6,6], "
    "f32[6,6,4], f32[4,6], f32[8,8], i64[4,2], f32[] {\n"
    "  %0 = contract %x, @w {bsk,k(thd)->bs(thd)} : f32[4,6,3.2.4]\n"
    "  %1 = contract %x, %y {bsk,bkt->bst} : f32[4,6,6]\n"
    "  %2 = contract %x, %y {bsk,bkt->tsb} : f32[6,6,4]\n"
    "  %3 = contract %x, %v {bsk,k->bs} : f32[4,6]\n"
    "  %4 = contract %v, %v {a,b->ab} : f32[8,8]\n"
    "  %5 = contract %i, %j {ak,kb->ab} : i64[4,2]\n"
    "  %6 = contract %v, %v {a,a->} : f32[]\n"
    "  ret %0, %1, %2, %3, %4, %5, %6 }\n",
    /* products of views: broadcast operands, summed letters that do not collapse, reversed operands, f64 */
    "func @f(%x: f32[4,6,8], %y: f32[8,6], %z: f64[4,6,8]) -> f32[4,4], f32[4,6,6], f32[4,8,8], f64[4,4], f32[4,6] {\n"
    "  %0 = contract %x, %x {ask,bsk->ab} : f32[4,4]\n"
    "  %1 = view %y {ks->bks} : f32[4,8,6]\n"
    "  %2 = contract %x, %1 {bsk,bkt->bst} : f32[4,6,6]\n"
    "  %3 = contract %x, %x {bsk,bst->bkt} : f32[4,8,8]\n"
    "  %4 = view %z {bsk->ksb} : f64[8,6,4]\n"
    "  %5 = contract %z, %4 {bsk,ksa->ab} : f64[4,4]\n"
    "  %6 = slice %y [7:-1:-1,-] : f32[8,6]\n"
    "  %7 = slice %x [-,0:1,-] : f32[4,1,8]\n"
    "  %8 = contract %7, %6 {b1k,ks->bs} : f32[4,6]\n"
    "  ret %0, %2, %3, %5, %8 }\n",
    /* attention with split heads */
    "param @w : f32[8,3.4.2] data(splat 0.25)\n"
    "param @o : f32[4.2,8] data(splat 0.5)\n"
    "func @f(%x: f32[4,6,8], %n: f32[4,6,8]) -> f32[4,6,8] {\n"
    "  %c = contract %n, @w {bsk,k(thd)->bs(thd)} : f32[4,6,3.4.2]\n"
    "  %t = mul %c, %c : f32[4,6,3.4.2]\n"
    "  %q = slice %c [-,-,0:1.-.-] : f32[4,6,4.2]\n"
    "  %k = slice %c [-,-,1:2.-.-] : f32[4,6,4.2]\n"
    "  %v = slice %t [-,-,2:3.-.-] : f32[4,6,4.2]\n"
    "  %a = composite attention(%q, %k, %v) : f32[4,6,4.2] {\n"
    "    %s = contract %q, %k {bs(hd),bt(hd)->bhst} : f32[4,4,6,6]\n"
    "    %m = reduce max %s {bhst->bhs1} : f32[4,4,6,1]\n"
    "    %d = sub %s, %m : f32[4,4,6,6]\n"
    "    %e = exp %d : f32[4,4,6,6]\n"
    "    %z = reduce sum %e {bhst->bhs1} : f32[4,4,6,1]\n"
    "    %p = div %e, %z : f32[4,4,6,6]\n"
    "    %u = contract %p, %v {bhst,bt(hd)->bs(hd)} : f32[4,6,4.2]\n"
    "    yield %u }\n"
    "  %y = contract %a, @o {bs(hd),(hd)n->bsn} : f32[4,6,8]\n"
    "  %r = add %x, %y : f32[4,6,8]\n"
    "  ret %r }\n",
    /* indices: two views of one iota, iota as a result and as an index, constants as results */
    "func @f(%x: f32[6,6], %y: f32[4,6]) -> f32[6,6], i64[6], f32[4,6], f32[3,2], i32[4.2] {\n"
    "  %i = iota dim 0 : i64[6]\n"
    "  %a = view %i {s->s1} : i64[6,1]\n"
    "  %b = view %i {t->1t} : i64[1,6]\n"
    "  %c = le %b, %a : bool[6,6]\n"
    "  %n = constant splat -9 : f32[]\n"
    "  %r = select %c, %x, %n : f32[6,6]\n"
    "  %g = gather %y, %i {bv,s->bs} : f32[4,6]\n"
    "  %k = constant splat 7 : f32[3,2]\n"
    "  %j = iota dim 0 : i32[4.2]\n"
    "  ret %r, %i, %g, %k, %j }\n",
    /* arguments, parameters and constants as results, twice, and through views */
    "param @w : f32[4,6] data(splat 3)\n"
    "func @f(%x: f32[4,6]) -> f32[4,6], f32[4,6], f32[4,6], f32[6,4], f32[2,2], f32[4,6], f32[4,6] {\n"
    "  %k = constant [1,2,3,4] : f32[2,2]\n"
    "  %v = view %x {ab->ba} : f32[6,4]\n"
    "  %e = exp %x : f32[4,6]\n"
    "  ret %x, %x, @w, %v, %k, %e, %e }\n",
    /* other types, casts between them, half precision */
    "func @f(%x: f32[4,6], %h: f16[4,6], %k: bf16[6,4], %i: i64[4,6], %u: u8[4,6]) -> f16[4,6], f16[4], bf16[6,6], "
    "i32[4,6], u8[4,6], bool[4,6], f16[4,4] {\n"
    "  %0 = cast %x : f16[4,6]\n"
    "  %1 = add %0, %h : f16[4,6]\n"
    "  %2 = reduce sum %1 {ab->a} : f16[4]\n"
    "  %3 = cast %h : bf16[4,6]\n"
    "  %4 = contract %k, %3 {ab,bc->ac} : bf16[6,6]\n"
    "  %5 = cast %i : i32[4,6]\n"
    "  %6 = mul %5, %5 : i32[4,6]\n"
    "  %7 = add %u, %u : u8[4,6]\n"
    "  %8 = lt %x, %x : bool[4,6]\n"
    "  %9 = not %8 : bool[4,6]\n"
    "  %10 = contract %h, %h {ak,bk->ab} : f16[4,4]\n"
    "  ret %1, %2, %4, %6, %7, %9, %10 }\n",
    /* a composite of several results, nested, and views inside */
    "func @f(%x: f32[4,6,8]) -> f32[6,4,8], f32[4,6] {\n"
    "  %a, %b = composite outer(%x) : f32[6,4,8], f32[4,6] {\n"
    "    %t = composite inner(%x) : f32[6,4,8] {\n"
    "      %v = view %x {abc->bac} : f32[6,4,8]\n"
    "      %e = exp %v : f32[6,4,8]\n"
    "      yield %e }\n"
    "    %s = reduce sum %t {bac->ba} : f32[6,4]\n"
    "    %w = view %s {ba->ab} : f32[4,6]\n"
    "    yield %t, %w }\n"
    "  ret %a, %b }\n",
    /* rows that may be split: softmax, then a norm with its statistics, as results and read again */
    "func @f(%x: f32[4,2.4], %g: f32[2.4]) -> f32[4,2.4], f32[4,1] {\n"
    "  %p = composite softmax(%x) : f32[4,2.4] {\n"
    "    %m = reduce max %x {a(bc)->a1} : f32[4,1]\n"
    "    %d = sub %x, %m : f32[4,2.4]\n"
    "    %e = exp %d : f32[4,2.4]\n"
    "    %z = reduce sum %e {a(bc)->a1} : f32[4,1]\n"
    "    %q = div %e, %z : f32[4,2.4]\n"
    "    yield %q }\n"
    "  %n, %i = composite norm(%p, %g) : f32[4,2.4], f32[4,1] {\n"
    "    %k = constant splat 0.125 : f32[]\n"
    "    %s = reduce sum %p {a(bc)->a1} : f32[4,1]\n"
    "    %m = mul %s, %k : f32[4,1]\n"
    "    %d = sub %p, %m : f32[4,2.4]\n"
    "    %q = mul %d, %d : f32[4,2.4]\n"
    "    %v = reduce sum %q {a(bc)->a1} : f32[4,1]\n"
    "    %e = add %v, %k : f32[4,1]\n"
    "    %w = rsqrt %e : f32[4,1]\n"
    "    %o = mul %d, %w : f32[4,2.4]\n"
    "    %y = mul %o, %g : f32[4,2.4]\n"
    "    yield %y, %m }\n"
    "  %r = mul %n, %i : f32[4,2.4]\n"
    "  ret %r, %i }\n",
    /* nothing divides: attention over 3 heads of 5, a mask of the future, a normalisation, logits over 7 words */
    "param @e : f32[7,3.5] data(splat 0.5)\n"
    "param @w : f32[3.5,3.3.5] data(splat 0.25)\n"
    "param @g : f32[3.5] data([1,2,3,4,5,6,7,8,-1,-2,-3,-4,-5,-6,-7])\n"
    "func @f(%i: i64[3,5], %x: f32[3,5,3.5]) -> f32[3,5,7], i64[3,5], f32[3,3,5,5] {\n"
    "  %0 = gather @e, %i {v(hd),bs->bs(hd)} : f32[3,5,3.5]\n"
    "  %n = add %0, %x : f32[3,5,3.5]\n"
    "  %c = contract %n, @w {bs(jk),(jk)(thd)->bs(thd)} : f32[3,5,3.3.5]\n"
    "  %q = slice %c [-,-,0:1.-.-] : f32[3,5,3.5]\n"
    "  %k = slice %c [-,-,1:2.-.-] : f32[3,5,3.5]\n"
    "  %v = slice %c [-,-,2:3.-.-] : f32[3,5,3.5]\n"
    "  %s = contract %q, %k {bs(hd),bt(hd)->bhst} : f32[3,3,5,5]\n"
    "  %p = iota dim 0 : i64[5]\n"
    "  %p1 = view %p {s->s1} : i64[5,1]\n"
    "  %p2 = view %p {t->1t} : i64[1,5]\n"
    "  %p3 = le %p2, %p1 : bool[5,5]\n"
    "  %low = constant splat -1000 : f32[]\n"
    "  %sm = select %p3, %s, %low : f32[3,3,5,5]\n"
    "  %m = reduce max %sm {bhst->bhs1} : f32[3,3,5,1]\n"
    "  %d = sub %sm, %m : f32[3,3,5,5]\n"
    "  %ex = exp %d : f32[3,3,5,5]\n"
    "  %z = reduce sum %ex {bhst->bhs1} : f32[3,3,5,1]\n"
    "  %a = div %ex, %z : f32[3,3,5,5]\n"
    "  %u = contract %a, %v {bhst,bt(hd)->bs(hd)} : f32[3,5,3.5]\n"
    "  %o = mul %u, @g : f32[3,5,3.5]\n"
    "  %l = contract %o, @e {bs(hd),v(hd)->bsv} : f32[3,5,7]\n"
    "  %t = reduce argmax %l {bsv->bs} : i64[3,5]\n"
    "  ret %l, %t, %a }\n",
    /* nothing divides: slices, pads, concats and reshapes beside split factors; long products; whole reductions */
    "param @w : f32[5,13] data(splat 0.125)\n"
    "func @f(%x: f32[5,3,13], %y: f32[5,2,13], %p: f32[]) -> f32[5,5,13], f32[5,15], f32[5,3.13], f32[13,5], f32[], "
    "f32[3], "
    "f32[5,2.3], f32[3,13], f32[2,13] {\n"
    "  %0 = concat %x, %y dim 1 : f32[5,5,13]\n"
    "  %e = exp %0 : f32[5,5,13]\n"
    "  %w1 = neg @w : f32[5,13]\n"
    "  %1 = pad %w1, %p [-,1:1] : f32[5,15]\n"
    "  %2 = slice %x [-,2:-1:-1,-] : f32[5,3,13]\n"
    "  %3 = add %2, %x : f32[5,3,13]\n"
    "  %4 = reshape %3 : f32[5,3.13]\n"
    "  %5 = contract %x, %3 {abk,cbk->ac} : f32[5,5]\n"
    "  %6 = contract @w, %5 {ak,ac->kc} : f32[13,5]\n"
    "  %7 = reduce sum %3 {abc->} : f32[]\n"
    "  %8 = reduce min %3 {abc->b} : f32[3]\n"
    "  %a = reduce sum %3 {abc->ab} : f32[5,3]\n"
    "  %b = reduce max %x {abc->ab} : f32[5,3]\n"
    "  %9 = concat %a, %b dim 1 : f32[5,2.3]\n"
    "  %h = slice %x [1:2,-,-] : f32[1,3,13]\n"
    "  %g = view %h {1bc->bc} : f32[3,13]\n"
    "  %i = constant [4,1] : i64[2]\n"
    "  %j = gather %6, %i {kc,s->ks} : f32[13,2]\n"
    "  %k = view %j {ks->sk} : f32[2,13]\n"
    "  ret %e, %1, %4, %6, %7, %8, %9, %g, %k }\n",
    /* reductions over dimensions of extent 1; rank 0; reshape of a splat */
    "func @f(%x: f32[4,1,6], %p: f32[]) -> f32[4,6], f32[], f32[4,6] {\n"
    "  %0 = reduce sum %x {a1b->ab} : f32[4,6]\n"
    "  %2 = exp %p : f32[]\n"
    "  %c = constant splat 2 : f32[24]\n"
    "  %3 = reshape %c : f32[4,6]\n"
    "  %4 = add %3, %0 : f32[4,6]\n"
    "  ret %0, %2, %4 }\n",
};
#define NMODELS (sizeof models / sizeof models[0])

/* ---- random strategies ---- */

typedef struct scatterer {
    ap_ctx *ctx;
    ap_module *m;
    ap_mesh mesh;
    const ap_batch *batch; /* NULL without time */
    uint64_t *seed;
    AP_VEC(ap_node) order;
} scatterer;

static inline void set_sharding(ap_module *m, ap_value v, ap_sharding s)
{
    ap_type_info t = ap_type_get(m->ctx, ap_value_type(m, v));
    ap_value_at(m, v)->type = ap_type_make(m->ctx, t.dtype, t.shape, s);
}

/* Any sharding in which a value may arrive: axes on factors that they divide; time on the batch. */
static inline ap_sharding random_sharding(scatterer *s, ap_value v)
{
    const ap_shape_info *shape = ap_value_shape(s->m, v);
    ap_sharding_info info = {.mesh = s->mesh, .nfactors = shape->nfactors};
    const ap_mesh_info *mesh = &s->m->meshes.at[s->mesh];
    for (int a = 0; a < mesh->naxes && shape->nfactors; a++) {
        int f = a < mesh->ntime ? s->batch->factor[v] : (int)draw(s->seed, shape->nfactors);
        if (f < 0)
            continue;
        ap_axes axes = ap_axes_append(info.axes[f], a);
        if ((a < mesh->ntime || draw(s->seed, 3)) && shape->physical[f] % ap_mesh_axes_size(mesh, axes) == 0)
            info.axes[f] = axes;
    }
    return ap_sharding_intern(s->ctx, &info);
}

static inline bool random_strategy(scatterer *s, ap_node n, ap_assign *assign, ap_strategy *out)
{
    ap_rule rule;
    ap_rule_get(s->m, n, &s->ctx->arena, &rule);
    const ap_mesh_info *mesh = &s->m->meshes.at[s->mesh];
    for (int attempt = 0; attempt < 20; attempt++) {
        memset(assign, 0, sizeof *assign);
        for (int a = 0; a < AP_MAX_AXES; a++) {
            ap_choice choices[AP_MAX_CHOICES];
            int count = a < mesh->naxes ? ap_rule_choices(&rule, mesh->axis_size[a], choices) : 0;
            if (a < mesh->ntime) {
                assign->axis[a] =
                    (ap_choice){.letter = ap_batch_letter(s->batch, s->m, n, &rule), .group = AP_RULE_NONE};
                continue;
            }
            assign->axis[a] = count && attempt < 19 ? choices[draw(s->seed, (uint32_t)count)]
                                                    : (ap_choice){.letter = AP_RULE_NONE, .group = AP_RULE_NONE};
        }
        if (ap_rule_apply(s->m, &rule, s->mesh, assign, &s->ctx->arena, out))
            return true;
    }
    return false;
}

static inline void replace_operand(ap_module *m, ap_node n, ap_value from, ap_value to)
{
    ap_node_info *node = ap_node_at(m, n);
    for (uint32_t k = 0; k < node->nin; k++)
        node->in[k] = node->in[k] == from ? to : node->in[k];
    if (node->body == AP_NONE)
        return;
    for (uint32_t i = 0; i < ap_block_at(m, node->body)->nodes.len; i++)
        replace_operand(m, ap_block_at(m, node->body)->nodes.at[i], from, to);
}

static inline ap_value reshard(scatterer *s, ap_value v, ap_sharding to)
{
    ap_node n = ap_module_add_node(s->m, AP_OP_RESHARD, 1, &v, 1, 0);
    ap_value out = ap_node_at(s->m, n)->out[0];
    ap_value_at(s->m, out)->type = ap_value_type(s->m, v);
    set_sharding(s->m, out, to);
    ap_vec_push(&s->ctx->arena, &s->order, n);
    return out;
}

static inline ap_sharding sharding_of(const scatterer *s, ap_value v)
{
    return ap_type_get(s->ctx, ap_value_type(s->m, v)).sharding;
}

/* A node whose two operands are one value wants one sharding of it, else the body of a composite could not tell. */
static inline bool wants_agree(const scatterer *s, ap_node n, const ap_strategy *st)
{
    const ap_node_info *node = ap_node_at(s->m, n);
    for (uint32_t i = 0; i < node->nin; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (node->in[i] == node->in[j] && st->operand[i] != st->operand[j])
                return false;
        }
    }
    return true;
}

static inline void scatter_node(scatterer *s, ap_node n)
{
    ap_assign assign;
    ap_strategy st;
    do
        assert_true(random_strategy(s, n, &assign, &st));
    while (!wants_agree(s, n, &st));
    uint32_t nin = ap_node_at(s->m, n)->nin;
    for (uint32_t k = 0; k < nin; k++) {
        ap_value v = ap_node_at(s->m, n)->in[k];
        if (sharding_of(s, v) != st.operand[k])
            replace_operand(s->m, n, v, reshard(s, v, st.operand[k]));
    }
    for (uint32_t k = 0; k < ap_node_at(s->m, n)->nout; k++)
        set_sharding(s->m, ap_node_at(s->m, n)->out[k], st.result[k]);
    if (ap_node_at(s->m, n)->body != AP_NONE) {
        ap_rule_body body;
        assert_true(ap_rule_apply_body(s->m, n, s->mesh, &assign, &s->ctx->arena, &body));
        ap_rule_write_body(s->m, n, &body);
    }
    ap_vec_push(&s->ctx->arena, &s->order, n);
}

static inline void scatter_return(scatterer *s, ap_node n)
{
    ap_func_info *f = &s->m->funcs.at[0];
    for (uint32_t k = 0; k < f->nresults; k++) {
        ap_value v = ap_node_at(s->m, n)->in[k];
        ap_sharding to = random_sharding(s, v);
        ap_node_at(s->m, n)->in[k] = to == sharding_of(s, v) ? v : reshard(s, v, to);
        f->result[k] = ap_value_type(s->m, ap_node_at(s->m, n)->in[k]);
    }
    ap_vec_push(&s->ctx->arena, &s->order, n);
}

/* normal -> explicit with a random strategy for every node. */
static inline void scatter(ap_ctx *ctx, ap_module *m, const ap_mesh_info *mesh, const ap_batch *batch, uint64_t *seed)
{
    scatterer s = {.ctx = ctx, .m = m, .batch = batch, .seed = seed};
    s.mesh = ap_module_add_mesh(m, mesh);
    ap_module_set_physical(m, mesh, draw(seed, 2), batch ? batch->alike : NULL, 0);
    const ap_func_info *f = &m->funcs.at[0];
    for (uint32_t i = 0; i < f->narguments; i++)
        set_sharding(m, f->argument[i], random_sharding(&s, f->argument[i]));
    for (uint32_t i = 0; i < m->symbols.len; i++)
        set_sharding(m, m->symbols.at[i].value, random_sharding(&s, m->symbols.at[i].value));
    uint32_t n = ap_block_at(m, f->body)->nodes.len;
    for (uint32_t i = 0; i + 1 < n; i++)
        scatter_node(&s, ap_block_at(m, f->body)->nodes.at[i]);
    scatter_return(&s, ap_block_at(m, f->body)->nodes.at[n - 1]);
    ap_block_at(m, f->body)->nodes.len = 0;
    for (uint32_t i = 0; i < s.order.len; i++)
        ap_block_append(m, f->body, s.order.at[i]);
    m->state = AP_STATE_PLANNED;
    assert_verifies(ctx, m);
    assert_ok(ctx, ap_pass_explicit(ctx, m));
    assert_verifies(ctx, m);
}

#endif

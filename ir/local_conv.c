/* Kernels of class CONV: text, what may be wrong with one, which elements it touches, and what it computes.
 *
 *     f32 n 1 g 1 m 64 c 3 int 0
 *     x [150528,0,1,672,3] w [0,147,49,7,1] y [802816,0,1,7168,64]
 *     window 224 by 7 to 112 3:3 stride 2
 *     window 224 by 7 to 112 3:3 stride 2
 *     step add 3 [0,0,1,0,0]
 *     step max 0x0p+0
 *     step sigmoid
 */
#include "ir/local_text.h"

#include "ir/op.h"
#include "ir/parse.h"
#include "ir/print.h"

#include <inttypes.h>
#include <string.h>

/* ---- text ---- */

static void print_extent(const char *key, int64_t extent, uint32_t turns, ap_text *out)
{
    ap_text_addf(out, " %s %" PRId64, key, extent);
    if (turns)
        ap_text_addf(out, " int %" PRIu32, turns - 1);
}

static void print_step(const ap_conv *c, const ap_conv_step *s, ap_text *out)
{
    ap_text_addf(out, "  step %s", s->pw < AP_PW_COUNT ? ap_pointwise_str((ap_pointwise)s->pw) : "?");
    if (s->other == AP_CONV_NUMBER) {
        ap_text_add(out, " ");
        ap_print_scalar(c->dtype, s->imm, out);
    } else if (s->other == AP_CONV_OPERAND) {
        ap_text_addf(out, " operand %d ", s->operand);
        ap_local_print_list(out, c->nspatial + 3, s->stride);
    }
    ap_text_add(out, "\n");
}

void ap_local_print_conv(const ap_conv *c, ap_text *out)
{
    static const char *const name[3] = {"  x ", " w ", " y "};
    const int64_t *const stride[3] = {c->x, c->w, c->y};
    int rank = c->nspatial <= AP_MAX_SPATIAL ? c->nspatial + 3 : 3;
    ap_text_addf(out, "  %s", c->dtype < AP_DTYPE_COUNT ? ap_dtype_str(c->dtype) : "?");
    print_extent("n", c->n, c->turns_n, out);
    print_extent("g", c->g, c->turns_g, out);
    print_extent("m", c->m, c->turns_m, out);
    print_extent("c", c->c, c->turns_c, out);
    ap_text_add(out, "\n");
    for (int i = 0; i < 3; i++) {
        ap_text_add(out, name[i]);
        ap_local_print_list(out, rank, stride[i]);
    }
    ap_text_add(out, "\n");
    for (int d = 0; d < rank - 3; d++) {
        ap_text_addf(out, "  window %" PRId64 " by %" PRId64 " to %" PRId64 " ", c->in[d], c->kernel[d], c->out[d]);
        ap_print_conv_dim(&c->dim[d], out);
        ap_text_add(out, "\n");
    }
    for (int i = 0; i < c->nsteps && i < AP_MAX_CONV_STEPS; i++)
        print_step(c, &c->step[i], out);
}

static ap_status parse_extent(ap_lex *l, const char *key, int64_t *extent, uint32_t *turns)
{
    AP_TRY(ap_lex_expect_word(l, key));
    AP_TRY(ap_lex_range(l, "an extent", 0, INT64_MAX, extent));
    return ap_local_parse_turns(l, turns);
}

static ap_status parse_strides(ap_lex *l, const char *key, int64_t *out, uint8_t *out_n)
{
    AP_TRY(ap_lex_expect_word(l, key));
    return ap_local_parse_list(l, "strides", AP_MAX_RANK, out, out_n);
}

static ap_status parse_window(ap_lex *l, ap_conv *c)
{
    int d = c->nspatial;
    if (d == AP_MAX_SPATIAL)
        return ap_lex_error(l, "more than %d windows", AP_MAX_SPATIAL);
    AP_TRY(ap_lex_range(l, "an extent", 0, INT64_MAX, &c->in[d]));
    AP_TRY(ap_lex_expect_word(l, "by"));
    AP_TRY(ap_lex_range(l, "an extent", 0, INT64_MAX, &c->kernel[d]));
    AP_TRY(ap_lex_expect_word(l, "to"));
    AP_TRY(ap_lex_range(l, "an extent", 0, INT64_MAX, &c->out[d]));
    AP_TRY(ap_parse_conv_dim(l, &c->dim[d]));
    c->nspatial++;
    return AP_OK;
}

static ap_status parse_step(ap_lex *l, ap_conv *c)
{
    const char *word;
    ap_pointwise pw;
    uint8_t n;
    if (c->nsteps == AP_MAX_CONV_STEPS)
        return ap_lex_error(l, "more than %d steps", AP_MAX_CONV_STEPS);
    ap_conv_step *s = &c->step[c->nsteps++];
    AP_TRY(ap_lex_word(l, "an operation", &word));
    if (!ap_pointwise_from_str(word, &pw))
        return ap_lex_error(l, "'%s' is no operation", word);
    s->pw = (uint16_t)pw;
    if (ap_lex_accept_word(l, "operand")) {
        int64_t operand;
        s->other = AP_CONV_OPERAND;
        AP_TRY(ap_lex_range(l, "an operand", 0, AP_LOCAL_MAX_OPERANDS, &operand));
        s->operand = (uint8_t)operand;
        AP_TRY(ap_local_parse_list(l, "strides", AP_MAX_RANK, s->stride, &n));
        return n == c->nspatial + 3 ? AP_OK : ap_lex_error(l, "%d strides, not %d", n, c->nspatial + 3);
    }
    if (ap_pointwise_nin(pw) != 2)
        return AP_OK;
    s->other = AP_CONV_NUMBER;
    return ap_parse_scalar(l, c->dtype, &s->imm);
}

ap_status ap_local_parse_conv(ap_lex *l, ap_conv *c)
{
    uint8_t n[3];
    AP_TRY(ap_parse_dtype(l, &c->dtype));
    AP_TRY(parse_extent(l, "n", &c->n, &c->turns_n));
    AP_TRY(parse_extent(l, "g", &c->g, &c->turns_g));
    AP_TRY(parse_extent(l, "m", &c->m, &c->turns_m));
    AP_TRY(parse_extent(l, "c", &c->c, &c->turns_c));
    AP_TRY(parse_strides(l, "x", c->x, &n[0]));
    AP_TRY(parse_strides(l, "w", c->w, &n[1]));
    AP_TRY(parse_strides(l, "y", c->y, &n[2]));
    while (ap_lex_accept_word(l, "window"))
        AP_TRY(parse_window(l, c));
    for (int i = 0; i < 3; i++)
        if (n[i] != c->nspatial + 3)
            return ap_lex_error(l, "%d strides for %d dimensions", n[i], c->nspatial + 3);
    while (ap_lex_accept_word(l, "step"))
        AP_TRY(parse_step(l, c));
    return ap_lex_expect(l, "}");
}

/* ---- verifying ---- */

static const char *window_fault(const ap_conv *c, int d)
{
    const ap_conv_dim *w = &c->dim[d];
    if (w->stride < 1 || w->dilate < 1 || w->hole < 1 || w->stride > INT32_MAX || w->dilate > INT32_MAX ||
        w->hole > INT32_MAX)
        return "a window has no steps";
    if (c->kernel[d] < 1 || c->in[d] < 0 || c->in[d] > AP_MAX_ELEMENTS || c->kernel[d] > AP_MAX_ELEMENTS)
        return "a window has no elements";
    return c->out[d] != ap_conv_extent(w, c->in[d], c->kernel[d]) ? "the windows are not as many as fit" : NULL;
}

static const char *step_fault(const ap_kernel *k, const ap_conv_step *s)
{
    int nin = s->pw < AP_PW_COUNT ? ap_pointwise_nin((ap_pointwise)s->pw) : 0;
    if (nin != (s->other == AP_CONV_NONE ? 1 : 2))
        return "a step is no operation, or has the wrong number of operands";
    if (s->other != AP_CONV_OPERAND)
        return NULL;
    if (s->operand == 2)
        return memcmp(s->stride, k->conv.y, sizeof s->stride) ? "a step reads the result elsewhere" : NULL;
    if (s->operand < 3 || s->operand >= k->noperands || k->operand[s->operand].dtype != k->conv.dtype)
        return "a step names no operand, or one of another type";
    return NULL;
}

const char *ap_local_conv_fault(const ap_kernel *k)
{
    const ap_conv *c = &k->conv;
    if (k->noperands < 3)
        return "a convolution reads two operands and writes the third";
    for (uint32_t i = 0; i < k->noperands; i++)
        if (k->operand[i].written != (i == 2) || k->operand[i].dtype != c->dtype)
            return "a convolution writes its third operand only, and all have its type";
    if (c->dtype == AP_BOOL || c->nspatial > AP_MAX_SPATIAL || c->nsteps > AP_MAX_CONV_STEPS)
        return "it is of no numbers, or has too many windows or steps";
    if (c->n < 0 || c->g < 0 || c->m < 0 || c->c < 0)
        return "an extent is negative";
    if (c->turns_n > k->nints || c->turns_g > k->nints || c->turns_m > k->nints || c->turns_c > k->nints)
        return "an extent names no int";
    for (int d = 0; d < c->nspatial; d++) {
        const char *fault = window_fault(c, d);
        if (fault)
            return fault;
    }
    for (int i = 0; i < c->nsteps; i++) {
        const char *fault = step_fault(k, &c->step[i]);
        if (fault)
            return fault;
    }
    return NULL;
}

static int64_t turns_of(int64_t extent, uint32_t turns, const int64_t *ints)
{
    return turns && ints ? ints[turns - 1] : extent;
}

bool ap_local_conv_turns_fit(const ap_conv *c, const int64_t *ints)
{
    const uint32_t turns[4] = {c->turns_n, c->turns_g, c->turns_m, c->turns_c};
    const int64_t most[4] = {c->n, c->g, c->m, c->c};
    for (int i = 0; i < 4; i++)
        if (turns[i] && (ints[turns[i] - 1] < 0 || ints[turns[i] - 1] > most[i]))
            return false;
    return true;
}

bool ap_local_conv_reach(const ap_conv *c, const int64_t *ints, uint32_t operand, ap_reach *out)
{
    int64_t n = turns_of(c->n, c->turns_n, ints), g = turns_of(c->g, c->turns_g, ints);
    int64_t m = turns_of(c->m, c->turns_m, ints), ch = turns_of(c->c, c->turns_c, ints);
    const int64_t head[3][3] = {{n, c->g, c->c}, {g, m, ch}, {n, c->g, c->m}};
    const int64_t *const spatial[3] = {c->in, c->kernel, c->out}, *const strides[3] = {c->x, c->w, c->y};
    int side = operand < 3 ? (int)operand : 2;
    *out = (ap_reach){.any = true};
    if (operand < 3) {
        for (int d = 0; d < c->nspatial + 3; d++)
            if (!ap_reach_loop(out, d < 3 ? head[side][d] : spatial[side][d - 3], strides[side][d]))
                return false;
        return true;
    }
    ap_reach all = {0};
    for (int i = 0; i < c->nsteps; i++) {
        const ap_conv_step *s = &c->step[i];
        ap_reach one = {.any = true};
        const int64_t channels[3] = {n, g, m};
        if (s->other != AP_CONV_OPERAND || s->operand != operand)
            continue;
        bool whole = ap_conv_step_is_whole(c, s);
        for (int d = 0; d < c->nspatial + 3; d++)
            if (!ap_reach_loop(&one, d >= 3 ? c->out[d - 3] : whole ? head[2][d] : channels[d], s->stride[d]))
                return false;
        all = all.any ? (ap_reach){true, ap_min_i64(all.lo, one.lo), ap_max_i64(all.hi, one.hi)} : one;
    }
    *out = all;
    return true;
}

/* ---- evaluating ---- */

typedef struct conv_run {
    const ap_conv *c;
    const ap_conv_memory *mem;
    int64_t channels;
} conv_run;

/* The element of the operand that result `at` and kernel element `k` meet along d; -1: a zero. */
static int64_t met(const ap_conv *c, int d, int64_t at, int64_t k)
{
    const ap_conv_dim *w = &c->dim[d];
    int64_t i = at * w->stride + (w->flip ? c->kernel[d] - 1 - k : k) * w->dilate - w->lo;
    return i < 0 || i % w->hole || i / w->hole >= c->in[d] ? -1 : i / w->hole;
}

/* Adds the products of one place of the kernel, over all channels; offsets of x and w without the place. */
static bool add_place(const conv_run *r, const int64_t *at, const int64_t *k, int64_t x, int64_t w, ap_scalar *sum)
{
    const ap_conv *c = r->c;
    bool is_float = ap_dtype_is_float(c->dtype);
    for (int d = 0; d < c->nspatial; d++) {
        int64_t i = met(c, d, at[d], k[d]);
        if (i < 0)
            return true;
        x += i * c->x[3 + d];
        w += k[d] * c->w[3 + d];
    }
    for (int64_t i = 0; i < r->channels; i++) {
        ap_scalar a, b;
        if (!r->mem->load(r->mem->user, 0, x + i * c->x[2], &a) || !r->mem->load(r->mem->user, 1, w + i * c->w[2], &b))
            return false;
        if (is_float)
            sum->f += a.f * b.f;
        else
            sum->i = (int64_t)((uint64_t)sum->i + (uint64_t)a.i * (uint64_t)b.i);
    }
    return true;
}

static bool next(int64_t *index, int n, const int64_t *extent)
{
    for (int d = n - 1; d >= 0; d--) {
        if (++index[d] < extent[d])
            return true;
        index[d] = 0;
    }
    return false;
}

static bool apply_steps(const conv_run *r, const int64_t *index, ap_scalar *x)
{
    const ap_conv *c = r->c;
    *x = ap_scalar_round(c->dtype, *x);
    for (int i = 0; i < c->nsteps; i++) {
        const ap_conv_step *s = &c->step[i];
        ap_scalar in[3] = {*x, s->imm};
        int64_t offset = 0;
        for (int d = 0; d < c->nspatial + 3; d++)
            offset += index[d] * s->stride[d];
        if (s->other == AP_CONV_OPERAND && !r->mem->load(r->mem->user, s->operand, offset, &in[1]))
            return false;
        *x = ap_pointwise_eval((ap_pointwise)s->pw, c->dtype, c->dtype, in);
    }
    return true;
}

/* index: n, g, m, then the place in the plane */
static bool conv_element(const conv_run *r, const int64_t *index)
{
    const ap_conv *c = r->c;
    int64_t k[AP_MAX_SPATIAL] = {0}, y = 0;
    ap_scalar sum = {0};
    do {
        if (!add_place(r, index + 3, k, index[0] * c->x[0] + index[1] * c->x[1],
                       index[1] * c->w[0] + index[2] * c->w[1], &sum))
            return false;
    } while (next(k, c->nspatial, c->kernel));
    if (!apply_steps(r, index, &sum))
        return false;
    for (int d = 0; d < c->nspatial + 3; d++)
        y += index[d] * c->y[d];
    return r->mem->store(r->mem->user, 2, y, sum);
}

bool ap_local_conv_eval(const ap_conv *c, const int64_t *ints, const ap_conv_memory *mem)
{
    int64_t index[AP_MAX_RANK] = {0}, extent[AP_MAX_RANK];
    conv_run r = {c, mem, turns_of(c->c, c->turns_c, ints)};
    extent[0] = turns_of(c->n, c->turns_n, ints);
    extent[1] = turns_of(c->g, c->turns_g, ints);
    extent[2] = turns_of(c->m, c->turns_m, ints);
    for (int d = 0; d < c->nspatial; d++)
        extent[3 + d] = c->out[d];
    for (int d = 0; d < c->nspatial + 3; d++)
        if (extent[d] == 0)
            return true;
    do {
        if (!conv_element(&r, index))
            return false;
    } while (next(index, c->nspatial + 3, extent));
    return true;
}

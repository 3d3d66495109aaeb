/* What random kernels are made of (random_nest.h): numbers, places of operands in inputs and outputs, text. */
#ifndef AP_TESTS_BACKEND_RANDOM_LAYOUT_H
#define AP_TESTS_BACKEND_RANDOM_LAYOUT_H

#include "tests/backend/harness.h"

#include "ir/base/text.h"

typedef struct random_nests {
    uint32_t *seed;
    ap_text head, kernels, calls;
    int inputs, outputs;
    int others; /* kernels that fill or copy */
} random_nests;

/* One kernel: loops, outer ones first, and what has been said of it so far. */
typedef struct random_nest {
    random_nests *all;
    int number, nouter, ninner, extent[8];
    const char *type;
    bool is_float, is_bool;
    bool fills; /* outputs are filled before: not every element is written, or something is there to be updated */
    ap_text operands, sops, call, ints, turns;
    int noperands, nsops, nints;
} random_nest;

/* The upper bits: the lower ones of such a series come round soon. */
static inline int nest_draw(random_nests *t, int n)
{
    return (int)((uint64_t)next_random(t->seed) * (uint32_t)n >> 24);
}

static inline bool nest_chance(random_nests *t, int of)
{
    return nest_draw(t, of) == 0;
}

static inline int nest_loops(const random_nest *r)
{
    return r->nouter + r->ninner;
}

/* ---- places ---- */

/* An operand starts `at` elements behind the beginning of a tensor of `size`. */
typedef struct nest_place {
    int64_t stride[8], at, size;
} nest_place;

/* n loops in a random order. Of what is read some are left out (it is the same along these), some go backwards, and
 * there may be room between rows and before the first; of what is written too where it `fills`. */
static inline nest_place nest_layout(random_nest *r, int n, const int *extent, bool reads)
{
    random_nests *t = r->all;
    nest_place p = {.size = 1};
    int order[8], count = 0;
    bool natural = nest_draw(t, 3) > 0, backwards = nest_chance(t, 8);
    bool loose = reads || r->fills;
    for (int l = 0; l < n; l++)
        if (!reads || nest_draw(t, 6))
            order[count++] = l;
    for (int i = count - 1; i > 0 && !natural; i--) {
        int k = nest_draw(t, i + 1), was = order[i];
        order[i] = order[k];
        order[k] = was;
    }
    for (int i = count - 1; i >= 0; i--) {
        int l = order[i];
        bool back = backwards && extent[l] > 0 && nest_chance(t, 2);
        p.stride[l] = back ? -p.size : p.size;
        p.at += back ? p.size * (extent[l] - 1) : 0;
        p.size *= extent[l];
        if (loose && i == count - 1 && nest_chance(t, 4))
            p.size += 1 + nest_draw(t, 4);
    }
    if (loose && nest_chance(t, 4)) {
        int before = 1 + nest_draw(t, 4);
        p.at += before;
        p.size += before;
    }
    return p;
}

static inline void nest_add_strides(random_nest *r, const int64_t *stride, int n)
{
    ap_text_add(&r->operands, " [");
    for (int l = 0; l < n; l++)
        ap_text_addf(&r->operands, "%s%lld", l ? "," : "", (long long)stride[l]);
    ap_text_add(&r->operands, "]\n");
}

static inline void nest_add_place(random_nest *r, const char *space, int number, int64_t at)
{
    ap_text_addf(&r->call, "%s%s(%d)", r->noperands ? ", " : "", space, number);
    if (at)
        ap_text_addf(&r->call, "+%lld", (long long)at);
}

static inline int nest_add_input(random_nests *t, const char *name, const char *type, int64_t size)
{
    ap_text_addf(&t->head, "input \"%s%d\" %s[%lld]\n", name, t->inputs, type, (long long)size);
    return t->inputs++;
}

/* The whole of an output from a constant, or from an input. */
static inline void nest_fill(random_nests *t, int output, const char *type, int64_t size, int input)
{
    int k = t->others++;
    bool copies = input >= 0;
    ap_text_addf(&t->kernels, "kernel nest @other%d {\n%s%s%s  write %s [1]\n  outer [%lld] inner []\n  row:\n", k,
                 copies ? "  read " : "", copies ? type : "", copies ? " [1]\n" : "", type, (long long)size);
    if (copies)
        ap_text_addf(&t->kernels, "    %%0 = load 0 : %s\n    store 1, %%0 : %s\n}\n", type, type);
    else
        ap_text_addf(&t->kernels, "    %%0 = const %s : %s\n    store 0, %%0 : %s\n}\n", "1", type, type);
    if (copies)
        ap_text_addf(&t->calls, "call @other%d(input(%d), output(%d))\n", k, input, output);
    else
        ap_text_addf(&t->calls, "call @other%d(output(%d))\n", k, output);
}

/* An operand that lies in a new input or output; its number. `nall`: of strides that the operand has, zeros behind
 * those of the place; 0: it has none (a product's). */
static inline int nest_operand(random_nest *r, const char *type, bool reads, const nest_place *p, int nall)
{
    ap_text_addf(&r->operands, "  %s %s", reads ? "read" : "write", type);
    if (nall)
        nest_add_strides(r, p->stride, nall);
    else
        ap_text_add(&r->operands, "\n");
    if (reads) {
        nest_add_place(r, "input", nest_add_input(r->all, "i", type, p->size), p->at);
    } else {
        int out = r->all->outputs++;
        ap_text_addf(&r->all->head, "output \"o%d\" %s[%lld]\n", out, type, (long long)p->size);
        nest_add_place(r, "output", out, p->at);
        if (r->fills)
            nest_fill(r->all, out, type, p->size, -1);
    }
    return r->noperands++;
}

static inline int nest_read(random_nest *r, const char *type, int loops)
{
    nest_place p = nest_layout(r, loops, r->extent, true);
    return nest_operand(r, type, true, &p, nest_loops(r));
}

static inline int nest_write(random_nest *r, const char *type, int loops)
{
    nest_place p = nest_layout(r, loops, r->extent, false);
    return nest_operand(r, type, false, &p, nest_loops(r));
}

/* Two operands, the second of which writes over the first, element by element: *out_read and the written one. What
 * stands there comes from an input. */
static inline int nest_write_over(random_nest *r, int *out_read)
{
    bool fills = r->fills;
    r->fills = false;
    nest_place p = nest_layout(r, nest_loops(r), r->extent, false);
    r->fills = fills;
    int in = nest_add_input(r->all, "i", r->type, p.size), out = r->all->outputs++;
    ap_text_addf(&r->all->head, "output \"o%d\" %s[%lld]\n", out, r->type, (long long)p.size);
    nest_fill(r->all, out, r->type, p.size, in);
    for (int written = 0; written < 2; written++) {
        ap_text_addf(&r->operands, "  %s %s", written ? "write" : "read", r->type);
        nest_add_strides(r, p.stride, nest_loops(r));
        nest_add_place(r, "output", out, p.at);
        if (!written)
            *out_read = r->noperands;
        r->noperands++;
    }
    return r->noperands - 1;
}

/* ---- operations ---- */

static inline int nest_sop(random_nest *r, const char *type, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static inline int nest_sop(random_nest *r, const char *type, const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (strncmp(text, "store", 5) && strncmp(text, "temp_store", 10) && strncmp(text, "update", 6))
        ap_text_addf(&r->sops, "    %%%d = %s : %s\n", r->nsops, text, type);
    else
        ap_text_addf(&r->sops, "    %s : %s\n", text, type);
    return r->nsops++;
}

/* x, after a few operators. */
static inline int nest_work(random_nest *r, int x, int y)
{
    static const char *const binary[] = {"add", "sub", "mul", "max", "min"};
    static const char *const unary[] = {"neg", "abs", "relu", "sign"};
    static const char *const of_bools[] = {"and", "or", "xor"};
    for (int i = nest_draw(r->all, 3); i >= 0; i--) {
        if (r->is_bool)
            x = y >= 0 && nest_chance(r->all, 2)
                    ? nest_sop(r, r->type, "%s %%%d, %%%d", of_bools[nest_draw(r->all, 3)], x, y)
                    : nest_sop(r, r->type, "not %%%d", x);
        else if (y >= 0 && nest_chance(r->all, 2))
            x = nest_sop(r, r->type, "%s %%%d, %%%d", binary[nest_draw(r->all, 5)], x, y);
        else
            x = nest_sop(r, r->type, "%s %%%d", unary[nest_draw(r->all, 4)], x);
    }
    return x;
}

/* An int that the call passes; its number. */
static inline int nest_int(random_nest *r, int value)
{
    ap_text_addf(&r->ints, "%s%d", r->nints ? ", " : "", value);
    return r->nints++;
}

static inline void nest_add_extents(ap_text *t, const int *extent, int n)
{
    ap_text_add(t, "[");
    for (int l = 0; l < n; l++)
        ap_text_addf(t, "%s%d", l ? "," : "", extent[l]);
    ap_text_add(t, "]");
}

/* The kernel as text, `body` between its operands and its operations. */
static inline void nest_finish(random_nest *r, const char *kind, const char *body)
{
    random_nests *all = r->all;
    ap_text_addf(&all->kernels, "kernel %s @k%d {\n%s", kind, r->number, ap_text_str(&r->operands));
    if (r->nints)
        ap_text_addf(&all->kernels, "  ints %d\n", r->nints);
    ap_text_addf(&all->kernels, "%s%s}\n", body, ap_text_str(&r->sops));
    ap_text_addf(&all->calls, "call @k%d(%s)", r->number, ap_text_str(&r->call));
    if (r->nints)
        ap_text_addf(&all->calls, " ints(%s)", ap_text_str(&r->ints));
    ap_text_add(&all->calls, "\n");
}

#endif

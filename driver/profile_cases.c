/* The program that is measured: independent nodes, one behind the other, each with its kind as the operator of its
 * loc. What products and row kernels read is made right before (cached, as activations are), weights are parameters,
 * which many others pass before they come again. The last pass of each shape is what counts: see repeats. */
#include "driver/profile.h"

#include <inttypes.h>

static const char *const kinds[AP_PROFILE_COUNT] = {
    [AP_PROFILE_FILL] = "fill",         [AP_PROFILE_LAUNCH] = "launch",   [AP_PROFILE_MEMORY] = "memory",
    [AP_PROFILE_ROWS] = "rows",         [AP_PROFILE_PRODUCT] = "product", [AP_PROFILE_CONV] = "convolution",
    [AP_PROFILE_EXCHANGE] = "exchange", [AP_PROFILE_COPY] = "copy"};

const char *ap_profile_kind_str(ap_profile_kind k)
{
    return kinds[k];
}

typedef struct writer {
    ap_text *head, *body;  /* symbols, nodes */
    ap_text *type, *value; /* of the results */
    int n;                 /* names so far */
} writer;

/* A type of `rank` dimensions on the mesh, nothing of it split. */
static void add_type(ap_text *t, const int64_t *dim, int rank)
{
    ap_text_add(t, "f32[");
    for (int d = 0; d < rank; d++)
        ap_text_addf(t, "%s%" PRId64, d ? "," : "", dim[d]);
    ap_text_add(t, "] @m[");
    for (int d = 0; d < rank; d++)
        ap_text_addf(t, "%s-", d ? "," : "");
    ap_text_add(t, "]");
}

static void add_loc(writer *w, ap_profile_kind kind, const char *name)
{
    ap_text_addf(w->body, "  loc(\"%s\", \"%s\")\n", name, kinds[kind]);
}

/* %aN: elements that are all one small number. */
static int fill(writer *w, const int64_t *dim, int rank)
{
    int n = w->n++;
    ap_text_addf(w->body, "  %%c%d = constant splat 0x1p-6 : ", n);
    add_type(w->body, dim, rank);
    ap_text_addf(w->body, "\n  %%a%d = neg %%c%d : ", n, n);
    add_type(w->body, dim, rank);
    add_loc(w, AP_PROFILE_FILL, "fill");
    return n;
}

/* What nobody reads is not computed: one element of the value that was added last, %LETTERn, is a result. It is
 * computed from the value at once, so that the value's memory is free again and programs have what is near in caches
 * there. */
static void use(writer *w, const char *letters, int n, const int64_t *dim, int rank)
{
    static const int64_t one[AP_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
    const char *comma = w->value->len ? ", " : "";
    ap_text_addf(w->body, "  %%s%s%d = slice %%%s%d [", letters, n, letters, n);
    for (int d = 0; d < rank; d++)
        ap_text_addf(w->body, "%s%s", d ? "," : "", dim[d] > 1 ? "0:1" : "-");
    ap_text_add(w->body, "] : ");
    add_type(w->body, one, rank);
    ap_text_addf(w->body, "\n  %%u%s%d = neg %%s%s%d : ", letters, n, letters, n);
    add_type(w->body, one, rank);
    add_loc(w, AP_PROFILE_FILL, "use");
    ap_text_addf(w->type, "%s\"%s%d\" ", comma, letters, n);
    add_type(w->type, one, rank);
    ap_text_addf(w->value, "%s%%u%s%d", comma, letters, n);
}

static void add_param(writer *w, const char *name, const int64_t *dim, int rank)
{
    ap_text_addf(w->head, "param @%s : ", name);
    add_type(w->head, dim, rank);
    ap_text_add(w->head, " data(splat 0x1p-6)\n");
}

/* ---- products ---- */

/* Weights of no more than this are used twice, and the second time counts: programs of such products have all of
 * theirs near. */
#define SMALL_BYTES (1 << 17)

/* A fiftieth of a second: longer ones say nothing more. */
#define MOST_TERMS (INT64_C(1) << 30)

typedef struct matrix {
    int64_t k, n;
} matrix;

static void add_product(writer *w, int64_t m, int64_t k, int64_t n, int weight)
{
    char name[96];
    int a = fill(w, (const int64_t[]){m, k}, 2);
    snprintf(name, sizeof name, "[%" PRId64 ",%" PRId64 "]x[%" PRId64 ",%" PRId64 "]", m, k, k, n);
    for (int turn = k * n * 4 <= SMALL_BYTES ? 0 : 1; turn < 2; turn++) {
        const char *letter = turn ? "p" : "q";
        ap_text_addf(w->body, "  %%%s%d = contract %%a%d, @w%d {%s} : ", letter, a, a, weight,
                     m > 1 ? "bk,kn->bn" : "1k,kn->1n");
        add_type(w->body, (const int64_t[]){m, n}, 2);
        add_loc(w, turn ? AP_PROFILE_PRODUCT : AP_PROFILE_FILL, name);
        use(w, letter, a, (const int64_t[]){m, n}, 2);
    }
}

static void add_products(writer *w, bool quick)
{
    static const matrix all[] = {{16, 16},    {32, 64},    {64, 64},     {128, 128}, {128, 512}, {384, 384},
                                 {384, 1536}, {1536, 384}, {768, 768},   {256, 256}, {512, 512}, {768, 3072},
                                 {3072, 768}, {768, 2304}, {1024, 1024}, {4, 12},    {8, 24},    {16, 48}};
    static const int64_t rows[] = {128, 1, 16, 512, 4, 64, 2, 32, 8, 256};
    int nmatrices = quick ? 6 : (int)(sizeof all / sizeof *all), nrows = quick ? 3 : (int)(sizeof rows / sizeof *rows);
    for (int i = 0; i < nmatrices; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        add_param(w, name, (const int64_t[]){all[i].k, all[i].n}, 2);
    }
    for (int r = 0; r < nrows; r++)
        for (int i = 0; i < nmatrices; i++)
            if (rows[r] * all[i].k * all[i].n <= MOST_TERMS)
                add_product(w, rows[r], all[i].k, all[i].n, i);
}

/* As in attention: both operands are made by the program. */
static void add_batched(writer *w, int64_t b, int64_t m, int64_t k, int64_t n)
{
    char name[96];
    int x = fill(w, (const int64_t[]){b, m, k}, 3), y = fill(w, (const int64_t[]){b, k, n}, 3);
    ap_text_addf(w->body, "  %%p%d = contract %%a%d, %%a%d {bmk,bkn->bmn} : ", x, x, y);
    add_type(w->body, (const int64_t[]){b, m, n}, 3);
    snprintf(name, sizeof name, "%" PRId64 " x [%" PRId64 ",%" PRId64 "]x[%" PRId64 ",%" PRId64 "]", b, m, k, k, n);
    add_loc(w, AP_PROFILE_PRODUCT, name);
    use(w, "p", x, (const int64_t[]){b, m, n}, 3);
}

/* ---- convolutions ---- */

typedef struct shape {
    int64_t batch, groups, in, out, size, kernel, stride; /* channels of one group; planes are square */
    bool steps;                                           /* multiplied and added to by a vector of channels each */
} shape;

/* %qN or %oN: %pN or %qN with a vector of channels. */
static void add_step(writer *w, const char *op, const char *result, const char *operand, int n, const shape *s,
                     int64_t to, const char *name)
{
    char param[24];
    snprintf(param, sizeof param, "%s%d", result, n);
    add_param(w, param, (const int64_t[]){1, s->groups, s->out, 1, 1}, 5);
    ap_text_addf(w->body, "  %%%s%d = %s %%%s%d, @%s : ", result, n, op, operand, n, param);
    add_type(w->body, (const int64_t[]){s->batch, s->groups, s->out, to, to}, 5);
    add_loc(w, AP_PROFILE_CONV, name);
}

static void add_conv(writer *w, const shape *s)
{
    char name[96], param[24];
    int64_t pad = s->kernel / 2, to = (s->size + 2 * pad - s->kernel) / s->stride + 1;
    int a = fill(w, (const int64_t[]){s->batch, s->groups, s->in, s->size, s->size}, 5);
    snprintf(param, sizeof param, "v%d", a);
    add_param(w, param, (const int64_t[]){s->groups, s->out, s->in, s->kernel, s->kernel}, 5);
    ap_text_addf(w->body, "  %%p%d = conv %%a%d, @%s [", a, a, param);
    for (int d = 0; d < 2; d++) {
        ap_text_add(w->body, d ? "," : "");
        if (pad)
            ap_text_addf(w->body, "%" PRId64 ":%" PRId64 "%s", pad, pad, s->stride > 1 ? " " : "");
        if (s->stride > 1)
            ap_text_addf(w->body, "stride %" PRId64, s->stride);
        else if (!pad)
            ap_text_add(w->body, "-");
    }
    ap_text_add(w->body, "] : ");
    add_type(w->body, (const int64_t[]){s->batch, s->groups, s->out, to, to}, 5);
    snprintf(name, sizeof name, "%" PRId64 "x%" PRId64 " on %" PRId64 "x%" PRId64 "x%" PRId64 "x%" PRId64 "%s",
             s->kernel, s->kernel, s->batch, s->groups * s->in, s->size, s->size, s->groups > 1 ? " depthwise" : "");
    add_loc(w, AP_PROFILE_CONV, name);
    if (s->steps) {
        add_step(w, "mul", "q", "p", a, s, to, name);
        add_step(w, "add", "o", "q", a, s, to, name);
    }
    use(w, s->steps ? "o" : "p", a, (const int64_t[]){s->batch, s->groups, s->out, to, to}, 5);
}

static void add_convs(writer *w, bool quick)
{
    static const shape all[] = {
        {1, 1, 16, 16, 32, 3, 1, false},   {1, 1, 64, 64, 28, 1, 1, false},   {1, 32, 1, 1, 28, 3, 1, false},
        {1, 1, 16, 16, 3, 1, 1, false},    {1, 1, 8, 8, 3, 3, 1, false},      {1, 16, 1, 1, 4, 3, 1, false},
        {1, 1, 64, 64, 28, 1, 1, true},    {1, 64, 1, 1, 28, 3, 1, true},     {1, 1, 32, 32, 28, 3, 1, true},
        {1, 1, 32, 8, 28, 1, 1, false},    {1, 1, 96, 48, 22, 1, 1, false},   {1, 48, 1, 1, 22, 3, 1, false},
        {1, 96, 1, 1, 11, 5, 1, false},    {1, 1, 32, 32, 14, 3, 1, false},   {1, 1, 8, 24, 24, 3, 1, false},
        {1, 1, 16, 32, 60, 1, 1, false},   {1, 64, 1, 1, 30, 3, 1, false},    {1, 1, 48, 64, 20, 3, 1, false},
        {1, 1, 128, 128, 14, 1, 1, false}, {1, 1, 64, 64, 56, 3, 1, false},   {1, 1, 128, 128, 28, 3, 1, false},
        {1, 1, 256, 256, 14, 3, 1, false}, {1, 1, 3, 64, 112, 3, 2, false},   {1, 1, 64, 128, 56, 3, 2, false},
        {1, 1, 64, 256, 56, 1, 1, false},  {1, 1, 512, 128, 28, 1, 1, false}, {1, 128, 1, 1, 56, 3, 1, false},
        {1, 96, 1, 1, 112, 3, 2, false},   {8, 1, 64, 64, 28, 3, 1, false},   {1, 1, 512, 512, 7, 3, 1, false}};
    for (int i = 0; i < (quick ? 7 : (int)(sizeof all / sizeof *all)); i++)
        add_conv(w, &all[i]);
}

/* ---- memory, row kernels, launches ---- */

/* Read and written, the second time out of the cache that holds both. */
static void add_memory(writer *w, bool quick)
{
    int64_t most = quick ? INT64_C(1) << 20 : INT64_C(1) << 23, from = 512;
    char name[64];
    add_param(w, "big", &most, 1);
    for (int64_t n = from; n <= most; n *= 2) {
        ap_text_addf(w->body, "  %%s%" PRId64 " = slice @big [0:%" PRId64 "] : ", n, n);
        add_type(w->body, &n, 1);
        ap_text_add(w->body, "\n");
        for (int turn = 0; turn < 3; turn++) {
            int id = w->n++;
            ap_text_addf(w->body, "  %%n%d = neg %%s%" PRId64 " : ", id, n);
            add_type(w->body, &n, 1);
            snprintf(name, sizeof name, "%" PRId64 " kB read and written", n * 4 / 1024);
            add_loc(w, turn ? AP_PROFILE_MEMORY : AP_PROFILE_FILL, name);
            use(w, "n", id, &n, 1);
        }
    }
}

static const char *add_operand(ap_text *t, const char *letter, int n)
{
    if (*letter == 'x')
        ap_text_addf(t, "@r%d", n);
    else
        ap_text_addf(t, "%%%c%d", *letter, n);
    return letter;
}

/* One node of a row kernel. In a formula %x is the operand of the kernel, %letter another value of it. */
static void add_row_node(writer *w, const char *result, int n, const char *formula, bool whole, const int64_t *dim,
                         const char *name)
{
    ap_text_addf(w->body, "  %%%s%d = ", result, n);
    for (const char *s = formula; *s; s++)
        if (*s == '%')
            s = add_operand(w->body, s + 1, n);
        else
            ap_text_add_n(w->body, s, 1);
    ap_text_add(w->body, " : ");
    add_type(w->body, (const int64_t[]){dim[0], whole ? dim[1] : 1}, 2);
    add_loc(w, AP_PROFILE_ROWS, name);
}

typedef struct step {
    const char *result, *formula;
    bool whole; /* not one number per row */
} step;

static void add_row_kernel(writer *w, const char *what, const step *s, int nsteps, int64_t rows, int64_t columns)
{
    const int64_t dim[] = {rows, columns};
    char name[64], param[16];
    int n = w->n++;
    snprintf(param, sizeof param, "r%d", n); /* of a fill the compiler would make one number */
    add_param(w, param, dim, 2);
    snprintf(name, sizeof name, "%s %" PRId64 "x%" PRId64, what, rows, columns);
    ap_text_addf(w->body, "  %%w%d = neg @r%d : ", n, n); /* so that it is near, as activations are */
    add_type(w->body, dim, 2);
    add_loc(w, AP_PROFILE_FILL, "fill");
    use(w, "w", n, dim, 2);
    for (int i = 0; i < nsteps; i++)
        add_row_node(w, s[i].result, n, s[i].formula, s[i].whole, dim, name);
    use(w, s[nsteps - 1].result, n, dim, 2);
}

static void add_rows(writer *w, int64_t rows, int64_t columns)
{
    static const step softmax[] = {{"m", "reduce max %x {ab->a1}", false},
                                   {"s", "sub %x, %m", true},
                                   {"e", "exp %s", true},
                                   {"t", "reduce sum %e {ab->a1}", false},
                                   {"d", "div %e, %t", true}};
    static const step gelu[] = {{"e", "erf %x", true}, {"m", "mul %x, %e", true}, {"d", "add %m, %x", true}};
    static const step norm[] = {
        {"m", "reduce sum %x {ab->a1}", false}, {"s", "sub %x, %m", true}, {"q", "mul %s, %s", true},
        {"v", "reduce sum %q {ab->a1}", false}, {"r", "rsqrt %v", false},  {"d", "mul %s, %r", true}};
    static const step poly[] = {
        {"a", "mul %x, %x", true}, {"b", "add %a, %x", true}, {"c", "mul %b, %a", true}, {"e", "sub %c, %x", true},
        {"f", "mul %e, %b", true}, {"g", "add %f, %c", true}, {"h", "mul %g, %e", true}, {"i", "sub %h, %a", true},
        {"j", "mul %i, %g", true}, {"k", "add %j, %b", true}, {"l", "mul %k, %i", true}, {"m", "max %l, %h", true},
        {"n", "mul %m, %k", true}, {"o", "min %n, %j", true}, {"p", "mul %o, %m", true}, {"d", "sub %p, %x", true}};
    add_row_kernel(w, "polynomial", poly, (int)(sizeof poly / sizeof *poly), rows, columns);
    add_row_kernel(w, "softmax", softmax, (int)(sizeof softmax / sizeof *softmax), rows, columns);
    add_row_kernel(w, "gelu", gelu, (int)(sizeof gelu / sizeof *gelu), rows, columns);
    add_row_kernel(w, "norm", norm, (int)(sizeof norm / sizeof *norm), rows, columns);
}

static void add_launches(writer *w, bool quick)
{
    int64_t n = 16;
    ap_text_add(w->body, "  %tiny = slice @big [0:16] : f32[16] @m[-]\n");
    for (int i = 0; i < (quick ? 8 : 32); i++) {
        int id = w->n++;
        ap_text_addf(w->body, "  %%t%d = neg %%tiny : ", id);
        add_type(w->body, &n, 1);
        add_loc(w, AP_PROFILE_LAUNCH, "launch");
        use(w, "t", id, &n, 1);
    }
}

/* ---- exchanges ---- */

static void add_exchange(writer *w, int64_t n)
{
    char bytes[32], type[32];
    const char *kind = kinds[AP_PROFILE_EXCHANGE];
    int a = fill(w, &n, 1);
    snprintf(bytes, sizeof bytes, n >= 1024 ? "%" PRId64 " kB" : "%" PRId64 " B", n >= 1024 ? n * 4 / 1024 : n * 4);
    snprintf(type, sizeof type, "f32[%" PRId64 "]", n);
    ap_text_addf(w->body, "  %%s%d = all_slice %%a%d over x : %s @m[x]\n", a, a, type);
    ap_text_addf(w->body, "  %%g%d = all_gather %%s%d over x : %s @m[-]  loc(\"all_gather %s\", \"%s\")\n", a, a, type,
                 bytes, kind);
    use(w, "g", a, &n, 1);
    ap_text_addf(w->body, "  %%m%d = mask %%a%d over x : %s @m[-] sum(x)  loc(\"fill\", \"fill\")\n", a, a, type);
    ap_text_addf(w->body, "  %%r%d = all_reduce %%m%d over x : %s @m[-]  loc(\"all_reduce %s\", \"%s\")\n", a, a, type,
                 bytes, kind);
    use(w, "r", a, &n, 1);
    ap_text_addf(w->body, "  %%c%d_ = reduce_scatter %%m%d over x : %s @m[x]  loc(\"reduce_scatter %s\", \"%s\")\n", a,
                 a, type, bytes, kind);
    ap_text_addf(w->body, "  %%h%d = all_gather %%c%d_ over x : %s @m[-]  loc(\"all_gather %s\", \"%s\")\n", a, a, type,
                 bytes, kind);
    use(w, "h", a, &n, 1);
}

/* From 256 B to 16 MB, a multiple of the devices. */
static void add_exchanges(writer *w, int32_t devices, bool quick)
{
    for (int64_t n = 64; n <= (quick ? INT64_C(1) << 18 : INT64_C(1) << 22); n *= 4)
        add_exchange(w, (n + devices - 1) / devices * devices);
}

void ap_profile_cases(ap_text *out, int32_t devices, bool quick)
{
    ap_text body, type, value;
    ap_text_init(&body, out->arena);
    ap_text_init(&type, out->arena);
    ap_text_init(&value, out->arena);
    writer w = {.head = out, .body = &body, .type = &type, .value = &value};
    ap_text_addf(out, "state explicit\nmesh @m = [x=%d] ranks 0..%d\n", devices, devices - 1);
    add_memory(&w, quick);
    add_launches(&w, quick);
    add_products(&w, quick);
    add_batched(&w, 12, 128, 64, 128);
    add_batched(&w, 12, 128, 128, 64);
    if (!quick) {
        add_batched(&w, 96, 32, 64, 32);
        add_batched(&w, 12, 16, 32, 16);
        add_batched(&w, 8, 256, 64, 256);
    }
    add_convs(&w, quick);
    add_rows(&w, 128, 128);
    if (!quick) {
        add_rows(&w, 128, 768);
        add_rows(&w, 512, 3072);
        add_rows(&w, 16, 384);
        add_rows(&w, 192, 24);
        add_rows(&w, 128, 12);
        add_rows(&w, 256, 7);
        add_rows(&w, 64, 4);
        add_rows(&w, 8, 16);
    }
    if (devices > 1)
        add_exchanges(&w, devices, quick);
    ap_text_addf(out, "func @profile() -> %s {\n%s  ret %s }\n", ap_text_str(&type), ap_text_str(&body),
                 ap_text_str(&value));
}

/* onnx_eval [--any-shape] MODEL DATA_SET_DIR [RTOL ATOL]: imports MODEL with the shapes of the inputs of an ONNX
 * test data set, verifies and evaluates it, and compares with the outputs of the data set.
 * onnx_eval --import MODEL NAME=SIZE...: imports and verifies only. --print adds the text form.
 *
 * One line on standard output, first word OK, DIFF, SKIP (not supported; the reasons follow) or ERROR. */
#include "frontend/frontend.h"
#include "frontend/tensor.h"
#include "ir/eval.h"
#include "ir/text_form.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_TENSORS 64

typedef struct run {
    ap_ctx *ctx;
    const char *model, *data;
    double rtol, atol;
    bool print;
    uint32_t ninputs;
    ap_tensor input[MAX_TENSORS];
    ap_input_shape shape[MAX_TENSORS];
} run;

static int report(run *r, const char *word)
{
    printf("%s", word);
    for (uint32_t i = 0; i < r->ctx->diags.len && i < 6; i++)
        printf(" | %s", ap_diag_str(r->ctx, &r->ctx->diags.at[i]));
    if (r->ctx->diags.len > 6)
        printf(" | (%u in all)", r->ctx->diags.len);
    printf("\n");
    return strcmp(word, "OK") == 0 ? 0 : strcmp(word, "SKIP") == 0 ? 3 : 1;
}

static char *pb_path(run *r, const char *kind, uint32_t i)
{
    char buf[4096];
    snprintf(buf, sizeof buf, "%s/%s_%u.pb", r->data, kind, i);
    return ap_arena_strdup(&r->ctx->arena, buf);
}

static bool load_inputs(run *r)
{
    for (; r->ninputs < MAX_TENSORS && access(pb_path(r, "input", r->ninputs), R_OK) == 0; r->ninputs++) {
        uint32_t i = r->ninputs;
        if (ap_onnx_tensor_load(r->ctx, pb_path(r, "input", i), &r->ctx->arena, &r->input[i]) != AP_OK)
            return false;
        r->shape[i] = (ap_input_shape){.index = i, .rank = r->input[i].shape.rank};
        ap_shape_dims(&r->input[i].shape, r->shape[i].dim);
    }
    return true;
}

/* Elementwise |a-b| <= atol*max(1, largest |b|) + rtol*|b|; integers and booleans exactly. */
static bool close_enough(const run *r, const ap_tensor *a, const ap_tensor *b, double *worst)
{
    *worst = 0;
    if (a->dtype != b->dtype || !ap_shape_same_dims(&a->shape, &b->shape))
        return false;
    bool ok = true;
    double scale = 1;
    for (int64_t i = 0; i < b->count && ap_dtype_is_float(b->dtype); i++)
        if (isfinite(b->at[i].f))
            scale = fmax(scale, fabs(b->at[i].f));
    for (int64_t i = 0; i < a->count; i++) {
        if (!ap_dtype_is_float(a->dtype)) {
            ok = ok && a->at[i].i == b->at[i].i;
            continue;
        }
        double x = a->at[i].f, y = b->at[i].f;
        if (x == y || (isnan(x) && isnan(y)))
            continue;
        double d = fabs(x - y);
        ok = ok && d <= r->atol * scale + r->rtol * fabs(y);
        *worst = isnan(d) ? INFINITY : fmax(*worst, d);
    }
    return ok;
}

static int compare(run *r, const ap_module *m, const ap_tensor *outputs)
{
    double all = 0, scale = 0;
    for (uint32_t i = 0; i < m->funcs.at[0].nresults; i++) {
        ap_tensor want;
        double worst, abs_diff, s;
        if (ap_onnx_tensor_load(r->ctx, pb_path(r, "output", i), &r->ctx->arena, &want) != AP_OK)
            return report(r, "SKIP");
        bool ok = close_enough(r, &outputs[i], &want, &worst);
        if (!ok) {
            printf("DIFF output %u: %s rank %u, want %s rank %u, largest difference %g\n", i,
                   ap_dtype_str(outputs[i].dtype), outputs[i].shape.rank, ap_dtype_str(want.dtype), want.shape.rank,
                   worst);
            return 1;
        }
        ap_tensor_compare(&outputs[i], &want, &abs_diff, &s);
        all = fmax(all, worst);
        scale = fmax(scale, s);
    }
    printf("OK max_abs %.3g scale %.3g nodes %u\n", all, scale, m->blocks.at[0].nodes.len);
    return 0;
}

static void print_module(const ap_module *m)
{
    ap_text t;
    ap_text_init(&t, &m->ctx->arena);
    ap_module_print(m, &t);
    printf("%s\n", ap_text_str(&t));
}

static int evaluate(run *r)
{
    ap_module *m;
    ap_import_info info;
    ap_import_options opt = {.nshapes = r->ninputs, .shape = r->shape};
    if (!load_inputs(r))
        return report(r, "SKIP");
    opt.nshapes = r->ninputs;
    if (ap_onnx_import(r->ctx, r->model, &opt, &m, &info) != AP_OK)
        return report(r, "SKIP");
    if (r->print)
        print_module(m);
    if (ap_module_verify(m) != AP_OK)
        return report(r, "ERROR");
    if (m->funcs.at[0].narguments != r->ninputs)
        return report(r, "ERROR wrong number of inputs");
    ap_tensor *outputs = AP_NEW_ARRAY(&r->ctx->arena, ap_tensor, m->funcs.at[0].nresults);
    if (ap_eval_func(m, 0, &r->ctx->arena, r->input, outputs) != AP_OK)
        return report(r, "ERROR");
    return compare(r, m, outputs);
}

static int import_only(run *r, int n, char **dims)
{
    ap_module *m;
    ap_dim_binding bind[MAX_TENSORS];
    ap_import_options opt = {.dim = bind};
    for (int i = 0; i < n && i < MAX_TENSORS; i++) {
        char *eq = strrchr(dims[i], '=');
        if (!eq)
            return 2;
        *eq = 0;
        bind[opt.ndims++] = (ap_dim_binding){.name = dims[i], .size = strtoll(eq + 1, NULL, 10)};
    }
    ap_import_info info;
    if (ap_onnx_import(r->ctx, r->model, &opt, &m, &info) != AP_OK)
        return report(r, "SKIP");
    if (r->print)
        print_module(m);
    if (ap_module_verify(m) != AP_OK)
        return report(r, "ERROR");
    printf("OK nodes %u parameters %lld\n", m->blocks.at[0].nodes.len, (long long)info.parameters);
    return 0;
}

int main(int argc, char **argv)
{
    run r = {.rtol = 1e-3, .atol = 1e-5};
    bool import = false;
    int at = 1;
    for (; at < argc && argv[at][0] == '-' && argv[at][1] == '-'; at++) {
        import = import || strcmp(argv[at], "--import") == 0;
        r.print = r.print || strcmp(argv[at], "--print") == 0;
    }
    if (argc - at < (import ? 1 : 2))
        return 2;
    r.ctx = ap_ctx_create();
    if (!r.ctx)
        return 1;
    r.model = argv[at];
    int rc;
    if (import) {
        rc = import_only(&r, argc - at - 1, argv + at + 1);
    } else {
        r.data = argv[at + 1];
        if (argc - at > 3) {
            r.rtol = atof(argv[at + 2]);
            r.atol = atof(argv[at + 3]);
        }
        rc = evaluate(&r);
    }
    ap_ctx_release(r.ctx);
    return rc;
}

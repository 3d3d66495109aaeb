/* check: run a compiled model on an ONNX test data set and compare its outputs, element types and shapes
 * included: |a-b| <= atol + rtol*|b|, NaN equal to NaN. */
#include "driver/commands.h"

#include "driver/launch.h"
#include "driver/plan_file.h"
#include "driver/process.h"
#include "driver/supervise.h"
#include "ir/pointwise.h"

#include <autopar_rt.h>
#include <dirent.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct comparison {
    const char *name;
    double max_abs, max_rel, scale;
    int64_t wrong, count;
    bool ok;
    const char *why; /* NULL, or why the values were not compared */
} comparison;

static ap_status load(ap_ctx *ctx, const char *path, aprt_tensor *out)
{
    aprt_failure why;
    int s = aprt_tensor_read(path, out, &why);
    return s == APRT_OK ? AP_OK : ap_fail(ctx, (ap_status)s, 0, "%s", why.text);
}

static double element(const aprt_tensor *t, ap_dtype dtype, int64_t i)
{
    ap_scalar x = ap_scalar_load(dtype, (const char *)t->data + i * ap_dtype_bytes(dtype));
    return ap_dtype_is_float(dtype) ? x.f : (double)x.i;
}

static bool same_integers(const aprt_tensor *a, const aprt_tensor *b, ap_dtype dtype, int64_t i)
{
    size_t size = (size_t)ap_dtype_bytes(dtype);
    return memcmp((const char *)a->data + (size_t)i * size, (const char *)b->data + (size_t)i * size, size) == 0;
}

/* a: ours, b: expected */
static void compare(ap_ctx *ctx, const aprt_tensor *a, const aprt_tensor *b, double rtol, double atol, comparison *out)
{
    char ours[128], theirs[128];
    ap_dtype dtype;
    aprt_shape_text(a->dtype, a->rank, a->dim, ours, sizeof ours);
    aprt_shape_text(b->dtype, b->rank, b->dim, theirs, sizeof theirs);
    if (strcmp(ours, theirs) != 0 || !ap_dtype_from_onnx(a->dtype, &dtype)) {
        out->why = ap_name_str(ctx, ap_name_format(ctx, "is %s, expected is %s", ours, theirs));
        return;
    }
    out->count = a->bytes / ap_dtype_bytes(dtype);
    for (int64_t i = 0; i < out->count; i++) {
        double x = element(a, dtype, i), y = element(b, dtype, i), d = fabs(x - y);
        bool ok = ap_dtype_is_float(dtype) ? x == y || (isnan(x) && isnan(y)) || d <= atol + rtol * fabs(y)
                                           : same_integers(a, b, dtype, i) || d <= atol;
        out->wrong += !ok;
        if (isfinite(y))
            out->scale = fmax(out->scale, fabs(y));
        if (x == y || (isnan(x) && isnan(y)))
            continue;
        d = isnan(d) ? INFINITY : d;
        out->max_abs = fmax(out->max_abs, d);
        out->max_rel = fmax(out->max_rel, d / fmax(fabs(y), 1e-30));
    }
    out->ok = out->wrong == 0;
}

/* ---- the data set ---- */

/* The I of PREFIX_I.pb, or -1. */
static int64_t index_in(const char *file, const char *prefix)
{
    size_t n = strlen(prefix);
    int64_t v = 0;
    if (strncmp(file, prefix, n) != 0)
        return -1;
    const char *s = file + n;
    size_t digits = strspn(s, "0123456789");
    if (digits == 0 || digits > 9 || strcmp(s + digits, ".pb") != 0)
        return -1;
    for (size_t i = 0; i < digits; i++)
        v = 10 * v + (s[i] - '0');
    return v;
}

/* A file that nobody would look at hides a mistake: the model has fewer inputs or outputs than the set. The least is
 * named, as the order of a folder is its own. */
static ap_status nothing_beyond(ap_ctx *ctx, const ap_options *opt, const char *prefix, const char *what, uint32_t n)
{
    DIR *dir = opendir(opt->data);
    int64_t least = INT64_MAX;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        int64_t i = index_in(e->d_name, prefix);
        least = i >= n && i < least ? i : least;
    }
    if (dir)
        closedir(dir);
    if (least == INT64_MAX)
        return AP_OK;
    return ap_error(ctx, 0, "%s/%s%lld.pb: the model has %u %s%s", opt->data, prefix, (long long)least, n, what,
                    n == 1 ? "" : "s");
}

/* ---- running ---- */

static ap_status run_model(ap_ctx *ctx, const ap_options *opt, const ap_pipeline *p, const char *out_dir)
{
    AP_VEC(const char *) argv = {0};
    ap_vec_push(&ctx->arena, &argv, ap_name_str(ctx, ap_name_format(ctx, "%s/model", opt->subject)));
    for (uint32_t i = 0; i < p->inputs.len; i++) {
        const char *name = ap_name_str(ctx, p->inputs.at[i].name);
        const char *path = ap_name_str(ctx, ap_name_format(ctx, "%s/input_%u.pb", opt->data, i));
        if (access(path, R_OK) != 0)
            return ap_fail(ctx, AP_ERR_ENV, 0, "%s: not there, but the model has the input '%s'", path, name);
        ap_vec_push(&ctx->arena, &argv, "--input");
        ap_vec_push(&ctx->arena, &argv, ap_name_str(ctx, ap_name_format(ctx, "%s=%s", name, path)));
    }
    ap_vec_push(&ctx->arena, &argv, "--output-dir");
    ap_vec_push(&ctx->arena, &argv, out_dir);
    ap_vec_push(&ctx->arena, &argv, NULL);
    return ap_launch(ctx, opt, argv.at, true);
}

static ap_status compare_all(ap_ctx *ctx, const ap_options *opt, const ap_pipeline *p, const char *dir, double rtol,
                             double atol, comparison *out)
{
    uint32_t n = p->outputs.len;
    aprt_port *port = AP_NEW_ARRAY(&ctx->arena, aprt_port, n);
    for (uint32_t i = 0; i < n; i++)
        out[i].name = port[i].name = ap_name_str(ctx, p->outputs.at[i].name);
    for (uint32_t i = 0; i < n; i++) {
        char file[256];
        aprt_output_file(port, n, i, file, sizeof file);
        aprt_tensor ours, expected;
        AP_TRY(load(ctx, ap_name_str(ctx, ap_name_format(ctx, "%s/%s", dir, file)), &ours));
        ap_status s = load(ctx, ap_name_str(ctx, ap_name_format(ctx, "%s/output_%u.pb", opt->data, i)), &expected);
        if (s == AP_OK) {
            compare(ctx, &ours, &expected, rtol, atol, &out[i]);
            aprt_tensor_free(&expected);
        }
        aprt_tensor_free(&ours);
        AP_TRY(s);
    }
    return AP_OK;
}

/* ---- results ---- */

static ap_status print_json(ap_ctx *ctx, const comparison *c, uint32_t n, bool ok)
{
    cJSON *root = cJSON_CreateObject(), *outputs;
    cJSON_AddBoolToObject(root, "ok", ok);
    outputs = cJSON_AddArrayToObject(root, "outputs");
    for (uint32_t i = 0; i < n; i++) {
        cJSON *o = cJSON_CreateObject();
        cJSON_AddItemToArray(outputs, o);
        cJSON_AddStringToObject(o, "name", c[i].name);
        cJSON_AddNumberToObject(o, "max_abs", c[i].max_abs);
        cJSON_AddNumberToObject(o, "max_rel", c[i].max_rel);
        cJSON_AddNumberToObject(o, "scale", c[i].scale);
        cJSON_AddNumberToObject(o, "elements", (double)c[i].count);
        cJSON_AddNumberToObject(o, "wrong", (double)c[i].wrong);
        cJSON_AddBoolToObject(o, "ok", c[i].ok);
        if (c[i].why)
            cJSON_AddStringToObject(o, "why", c[i].why);
    }
    const char *text;
    AP_TRY(ap_json_text(ctx, root, &text));
    printf("%s\n", text);
    return AP_OK;
}

static ap_status report(ap_ctx *ctx, const ap_options *opt, const comparison *c, uint32_t n)
{
    bool ok = true;
    for (uint32_t i = 0; i < n; i++)
        ok = ok && c[i].ok;
    if (opt->json)
        AP_TRY(print_json(ctx, c, n, ok));
    for (uint32_t i = 0; i < n && !opt->json && !opt->quiet; i++)
        if (!c[i].why)
            printf("%s: %s, max |a-b| %g, max |a-b|/|b| %g, scale %g, %lld elements\n", c[i].name,
                   c[i].ok ? "ok" : "DIFFERS", c[i].max_abs, c[i].max_rel, c[i].scale, (long long)c[i].count);
    for (uint32_t i = 0; i < n; i++)
        if (c[i].why)
            ap_error(ctx, 0, "output '%s' %s", c[i].name, c[i].why);
        else if (!c[i].ok)
            ap_error(ctx, 0, "output '%s' differs in %lld of %lld elements, by at most %g", c[i].name,
                     (long long)c[i].wrong, (long long)c[i].count, c[i].max_abs);
    return ok ? AP_OK : AP_ERR_MODEL;
}

ap_status ap_cmd_check(ap_ctx *ctx, const ap_options *opt)
{
    double rtol = 1e-3, atol = 1e-5;
    if (!opt->data)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "check: --data TEST_DATA_SET_DIR is missing");
    if (opt->rtol)
        AP_TRY(ap_option_seconds(ctx, "rtol", opt->rtol, &rtol));
    if (opt->atol)
        AP_TRY(ap_option_seconds(ctx, "atol", opt->atol, &atol));
    ap_plan_file plan;
    struct stat st;
    if (stat(opt->subject, &st) == 0 && !S_ISDIR(st.st_mode))
        return ap_fail(ctx, AP_ERR_USAGE, 0, "check: %s is no folder; `autopar compile MODEL.onnx -o DIR` makes one",
                       opt->subject);
    AP_TRY(ap_plan_file_read(ctx, opt->subject, &plan));
    AP_TRY(nothing_beyond(ctx, opt, "input_", "input", plan.p->inputs.len));
    AP_TRY(nothing_beyond(ctx, opt, "output_", "output", plan.p->outputs.len));
    uint32_t n = plan.p->outputs.len;
    comparison *c = AP_NEW_ARRAY(&ctx->arena, comparison, n);
    const char *dir = NULL;
    bool worker;
    AP_TRY(ap_temp_dir(ctx, &dir));
    ap_status s = ap_supervise(ctx, &(ap_half_done){.part = dir}, &worker);
    if (!worker)
        return s;
    s = run_model(ctx, opt, plan.p, dir);
    if (s == AP_OK)
        s = compare_all(ctx, opt, plan.p, dir, rtol, atol, c);
    AP_TRY(s);
    return report(ctx, opt, c, n);
}

/* profile --target cuda: the GPUs of this machine. What measures them is a program of its own, under MIT, since it is
 * linked with CUDA (runtime/cuda/profile); we start it and read what it prints. The fit is that of the processors. */
#include "driver/profile.h"

#include "driver/process.h"
#include "ir/base/file.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VERSION = 1 }; /* of what it prints */

/* ---- the program ---- */

/* Beside this one, or $AUTOPAR_PROFILE_CUDA. */
static ap_status find_program(ap_ctx *ctx, const char **out)
{
    const char *named = getenv("AUTOPAR_PROFILE_CUDA"), *include, *lib;
    if (named && *named) {
        *out = named;
        return AP_OK;
    }
    AP_TRY(ap_find_runtime(ctx, &include, &lib));
    *out = ap_name_str(ctx, ap_name_format(ctx, "%s/../bin/autopar_profile_cuda", include));
    if (access(*out, X_OK) == 0)
        return AP_OK;
    return ap_fail(ctx, AP_ERR_ENV, 0, "profile --target cuda: this autopar was built without CUDA (%s is missing)",
                   *out);
}

/* What a program has written, without the last line's end. */
static ap_status read_text(ap_ctx *ctx, const char *path, const char **out)
{
    ap_file f;
    AP_TRY(ap_file_map(ctx, path, &f));
    char *s = ap_arena_strndup(&ctx->arena, (const char *)f.data, (size_t)f.size);
    ap_file_unmap(&f);
    for (size_t n = strlen(s); n > 0 && s[n - 1] == '\n'; n--)
        s[n - 1] = 0;
    *out = s;
    return AP_OK;
}

static ap_status start(ap_ctx *ctx, const ap_profile_options *opt, const char **out_text)
{
    const char *argv[5] = {NULL}, *said;
    int n = 1, code;
    AP_TRY(find_program(ctx, &argv[0]));
    if (opt->devices) {
        argv[n++] = "--devices";
        argv[n++] = ap_name_str(ctx, ap_name_format(ctx, "%d", (int)opt->devices));
    }
    if (opt->quick)
        argv[n] = "--quick";
    const char *out = ap_name_str(ctx, ap_name_format(ctx, "%s/measured.json", opt->dir));
    const char *err = ap_name_str(ctx, ap_name_format(ctx, "%s/messages", opt->dir));
    if (opt->progress)
        opt->progress(opt->user, "GPUs", 0, 1);
    AP_TRY(ap_process_run_to(ctx, argv, out, err, &code));
    if (opt->progress)
        opt->progress(opt->user, "", 1, 1);
    AP_TRY(read_text(ctx, err, &said));
    if (code != 0)
        return ap_fail(ctx, AP_ERR_ENV, 0, "profile --target cuda: %s",
                       *said ? said : ap_name_str(ctx, ap_name_format(ctx, "%s ended with code %d", argv[0], code)));
    if (*said) /* notices of libraries */
        fprintf(stderr, "%s\n", said);
    return read_text(ctx, out, out_text);
}

/* ---- what it printed ---- */

static bool read_number(const cJSON *o, const char *key, double *out)
{
    const cJSON *x = cJSON_GetObjectItem(o, key);
    *out = cJSON_IsNumber(x) ? x->valuedouble : -1;
    return *out >= 0 && *out < 0x1p53;
}

static bool read_kind(const char *text, ap_profile_kind *out)
{
    if (strcmp(text, "upload") == 0 || strcmp(text, "download") == 0) {
        *out = AP_PROFILE_COPY;
        return true;
    }
    for (int k = 0; k < AP_PROFILE_COUNT; k++)
        if (strcmp(text, ap_profile_kind_str((ap_profile_kind)k)) == 0) {
            *out = (ap_profile_kind)k;
            return true;
        }
    return false;
}

static bool read_counts(const cJSON *o, ap_profile_case *out)
{
    ap_work *w = &out->work;
    const struct {
        const char *key;
        int64_t *to;
    } counts[] = {{"each", &w->each},   {"flops", &w->flops},   {"columns", &w->columns},
                  {"depth", &w->depth}, {"simple", &w->simple}, {"functions", &w->functions},
                  {"row", &w->row},     {"bytes", &out->bytes}, {"steps", &out->steps}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        double x;
        if (!read_number(o, counts[i].key, &x))
            return false;
        *counts[i].to = (int64_t)x;
    }
    return true;
}

static bool read_what(const char *text, ap_product_kind *out)
{
    static const char *const names[AP_PRODUCT_KINDS] = {[AP_PRODUCT_NONE] = "",
                                                        [AP_PRODUCT_MATRIX] = "matrix",
                                                        [AP_PRODUCT_SPATIAL] = "spatial",
                                                        [AP_PRODUCT_POINTWISE] = "pointwise",
                                                        [AP_PRODUCT_DEPTHWISE] = "depthwise"};
    for (int k = 0; k < AP_PRODUCT_KINDS; k++)
        if (strcmp(text, names[k]) == 0) {
            *out = (ap_product_kind)k;
            return true;
        }
    return false;
}

/* *out_tf32: the case is one of f32 computed in TF32. */
static bool read_case(ap_ctx *ctx, const cJSON *o, ap_profile_case *out, bool *out_tf32)
{
    const char *kind = cJSON_GetStringValue(cJSON_GetObjectItem(o, "kind"));
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItem(o, "type"));
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(o, "name"));
    const char *what = cJSON_GetStringValue(cJSON_GetObjectItem(o, "what"));
    *out_tf32 = type && strcmp(type, "tf32") == 0;
    if (!kind || !type || !name || !what || !read_kind(kind, &out->kind) || !read_what(what, &out->work.kind) ||
        !ap_dtype_from_str(*out_tf32 ? "f32" : type, &out->work.dtype) || !read_counts(o, out) ||
        !read_number(o, "seconds", &out->seconds))
        return false;
    out->name = ap_arena_strdup(&ctx->arena, name);
    out->seconds = out->seconds > 1e-12 ? out->seconds : 1e-12;
    return true;
}

/* With AUTOPAR_TF32=1 programs compute f32 in TF32: then these cases are what f32 takes, otherwise they are left out.
 */
static bool is_wanted(const ap_profile_case *k, bool tf32)
{
    const char *set = getenv("AUTOPAR_TF32");
    const bool use = set && *set && strcmp(set, "0") != 0;
    const bool changes = k->work.dtype == AP_F32 && (k->kind == AP_PROFILE_PRODUCT || k->kind == AP_PROFILE_CONV);
    return !changes || tf32 == use;
}

static bool read_cases(ap_ctx *ctx, const cJSON *root, ap_profile *out)
{
    const cJSON *all = cJSON_GetObjectItem(root, "cases"), *o;
    out->ncases = 0;
    out->at = AP_NEW_ARRAY(&ctx->arena, ap_profile_case, cJSON_GetArraySize(all));
    cJSON_ArrayForEach(o, all)
    {
        ap_profile_case *k = &out->at[out->ncases];
        bool tf32;
        *k = (ap_profile_case){0};
        if (!read_case(ctx, o, k, &tf32))
            return false;
        out->ncases += is_wanted(k, tf32);
    }
    return out->ncases > 0;
}

/* A name as cluster files have them. */
static const char *plain_name(ap_ctx *ctx, const char *gpu)
{
    char *name = ap_arena_strdup(&ctx->arena, gpu);
    for (char *s = name; *s; s++)
        *s = isalnum((unsigned char)*s) ? (char)tolower((unsigned char)*s) : '-';
    return *name ? name : "gpus";
}

/* The cluster before the fit: what is not measured is as in the description by which --devices N is priced. */
static ap_status base_of(ap_ctx *ctx, const cJSON *root, int32_t devices, ap_cluster *out)
{
    double memory;
    AP_TRY(ap_cluster_from_preset(ctx, ap_name_str(ctx, ap_name_format(ctx, "dgx-h100:1x%d", (int)devices)), out));
    out->name = plain_name(ctx, cJSON_GetStringValue(cJSON_GetObjectItem(root, "gpu")));
    if (read_number(root, "memory", &memory) && memory >= 1)
        out->memory_bytes = (int64_t)memory;
    const int64_t host = ap_profile_memory();
    out->ntiers = 2;
    out->tier[0] = (ap_memory_tier){"HBM", out->memory_bytes, out->memory_bytes_per_second, 0, 1};
    out->tier[1] = (ap_memory_tier){"DRAM", host < INT64_MAX ? host : INT64_C(64) << 30, INT64_C(25) * 1000000000,
                                    INT64_C(5) * 1000000, devices};
    return AP_OK;
}

ap_status ap_profile_cuda_measure(ap_ctx *ctx, const ap_profile_options *opt, ap_profile *out, ap_cluster *out_base)
{
    const char *text;
    double version, devices;
    AP_TRY(start(ctx, opt, &text));
    cJSON *root = cJSON_Parse(text);
    const bool good = root && read_number(root, "version", &version) && version == VERSION &&
                      read_number(root, "devices", &devices) && devices >= 1 && devices <= 8 &&
                      cJSON_IsString(cJSON_GetObjectItem(root, "gpu")) && read_cases(ctx, root, out);
    ap_status s = good ? base_of(ctx, root, (int32_t)devices, out_base)
                       : ap_fail(ctx, AP_ERR_ENV, 0,
                                 "profile --target cuda: the program that measures GPUs is not of this autopar: what "
                                 "it printed is not understood");
    cJSON_Delete(root);
    return s;
}

/* ---- what the figures say of a case ---- */

void ap_profile_cuda_price(const ap_cluster *c, ap_profile_case *k)
{
    if (k->kind == AP_PROFILE_EXCHANGE)
        k->predicted_ps =
            k->steps * c->inside.latency_ps + (int64_t)(1e12 * (double)k->bytes / (double)c->inside.bytes_per_second);
    else if (k->kind == AP_PROFILE_COPY)
        k->predicted_ps =
            c->tier[1].latency_ps + (int64_t)(1e12 * (double)k->bytes / (double)c->tier[1].bytes_per_second);
    else
        k->predicted_ps = ap_cluster_kernel_ps(c, ap_cluster_work_ps(c, &k->work), ap_cluster_bytes_ps(c, k->bytes));
}

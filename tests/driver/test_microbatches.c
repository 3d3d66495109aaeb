/* Real models in microbatches: planned, explicit and local programs give the numbers of one device. Which of the shared
 * models can be cut is written down here; data: AUTOPAR_DATA, else `shared` beside the project, else this is skipped.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "frontend/frontend.h"
#include "frontend/tensor.h"
#include "passes/batch.h"
#include "passes/check.h"
#include "passes/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *data_folder(void)
{
    static const char beside[] = AP_TESTS_DIR "/../../shared";
    const char *given = getenv("AUTOPAR_DATA");
    return given ? given : beside;
}

static const char *index_path(ap_ctx *ctx)
{
    return ap_name_str(ctx, ap_name_format(ctx, "%s/models/INDEX.tsv", data_folder()));
}

static bool exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

/* Shapes of the first data set; where `batch_dim` says, `batch` instead. */
static uint32_t read_shapes(ap_ctx *ctx, const char *model, const int8_t *batch_dim, int64_t batch, ap_input_shape *out)
{
    uint32_t n = 0;
    for (;; n++) {
        ap_name path = ap_name_format(ctx, "%s/models/%s/test_data_set_0/input_%u.pb", data_folder(), model, n);
        ap_tensor t;
        if (!exists(ap_name_str(ctx, path)) ||
            ap_onnx_tensor_load(ctx, ap_name_str(ctx, path), &ctx->arena, &t) != AP_OK)
            return n;
        out[n] = (ap_input_shape){.index = n};
        out[n].rank = (uint32_t)ap_shape_dims(&t.shape, out[n].dim);
        if (batch && batch_dim[n] >= 0)
            out[n].dim[batch_dim[n]] = batch;
    }
}

static ap_status import(ap_ctx *ctx, const char *model, int64_t batch, const int8_t *batch_dim, const char *dim_name,
                        ap_module **m, ap_import_info *info)
{
    ap_input_shape *shape = AP_NEW_ARRAY(&ctx->arena, ap_input_shape, 64);
    ap_import_options opt = {.shape = shape, .batch_dim = dim_name};
    opt.nshapes = read_shapes(ctx, model, batch_dim, batch, shape);
    const char *path = ap_name_str(ctx, ap_name_format(ctx, "%s/models/%s/model.onnx", data_folder(), model));
    return ap_onnx_import(ctx, path, &opt, m, info);
}

static void print_messages(ap_ctx *ctx)
{
    for (uint32_t i = 0; i < ctx->diags.len; i++)
        print_error("    %s\n", ap_diag_str(ctx, &ctx->diags.at[i]));
}

typedef struct job {
    ap_ctx *ctx;
    ap_module *m;
    ap_check check;
    ap_plan_options opt;
} job;

static ap_status plan_and_lower(job *j)
{
    ap_plan_result r;
    ap_local *local;
    AP_TRY(ap_pass_plan(j->ctx, j->m, &j->opt, &r));
    AP_TRY(ap_check_after(&j->check, j->ctx, "plan", j->m));
    AP_TRY(ap_explicit_run(j->ctx, j->m, &j->opt.cluster));
    AP_TRY(ap_check_after(&j->check, j->ctx, "explicit", j->m));
    AP_TRY(ap_lower_local(j->ctx, j->m, "model", &local));
    return ap_check_local(&j->check, j->ctx, local);
}

/* On two devices; `force`: everything split that can be. */
static ap_status check_one(ap_ctx *ctx, const char *model, const char *dim_name, int64_t batch, int32_t microbatches,
                           bool force)
{
    ap_import_info info;
    job j = {.ctx = ctx};
    AP_TRY(import(ctx, model, 0, NULL, dim_name, &j.m, &info));
    AP_TRY(import(ctx, model, batch, info.batch_dim, dim_name, &j.m, &info));
    AP_TRY(ap_check_init(ctx, j.m, NULL, &j.check));
    ap_status s = ap_passes_run(ctx, j.m, AP_PASSES_NORMAL, NULL);
    ap_mesh_info mesh = {.name = ap_name_make(ctx, "m"), .ntime = 1, .naxes = 2, .axis_size = {microbatches, 2}};
    mesh.axis_name[0] = ap_name_make(ctx, AP_TIME_AXIS);
    mesh.axis_name[1] = ap_name_make(ctx, "x");
    j.opt = (ap_plan_options){.mesh = mesh, .split_force = force};
    ap_cluster_local(2, &j.opt.cluster);
    if (s == AP_OK)
        s = ap_batch_arguments(ctx, j.m, info.batch_dim, microbatches, &j.opt.batch);
    if (s == AP_OK)
        s = plan_and_lower(&j);
    ap_check_deinit(&j.check);
    return s;
}

/* batch 0: that of the data set, which the model has fixed. */
static const struct {
    const char *model, *dim;
    int64_t batch;
    int32_t microbatches;
    const char *refusal; /* NULL: it agrees, split by force too */
} cases[] = {
    {"genai-tiny-gpt2-5l", NULL, 4, 2, NULL},
    {"genai-tiny-gpt2-5l", NULL, 5, 2, NULL},
    {"ort-bert-toy5l", NULL, 4, 4, NULL},
    {"ort-bert-toy5l", NULL, 5, 2, NULL},
    {"ort-gpt2-1l", NULL, 4, 2, NULL},
    {"ort-gpt2-1l-past", NULL, 5, 3, NULL},
    {"ort-bert-head", NULL, 6, 3, NULL},
    {"ort-embedlayernorm3", NULL, 5, 2, NULL},
    {"ort-megatron-bart-mlp", NULL, 5, 3, NULL},
    {"emx-kws-qdq", NULL, 4, 4, NULL}, /* convolutions, their last microbatch short */
    {"emx-kws-qdq", NULL, 5, 2, NULL},
    {"ort-whisper-dec-attn", NULL, 0, 2, NULL},
    {"ort-skiplayernorm", NULL, 0, 3, NULL},
    {"ort-mnist-cntk", NULL, 0, 1, NULL},
    {"ort-mnist-cntk", NULL, 0, 2, "a batch of 1 cannot be cut into 2 microbatches"},
    {"ort-bert-head", NULL, 6, 4, "the nearest that work are 3 and 6"},
    {"ort-biasgelu", NULL, 0, 2, "no input has a batch"},
    {"ort-bert-toy5l", "input_ids:1", 0, 2,
     "(MatMul): no microbatches: contract brings together entries of different batches"},
    /* its attention is over what its inputs call the batch */
    {"vespa-bert2l", NULL, 4, 2, "(MatMul): no microbatches: contract brings together entries of different batches"},
};

static void models_agree_in_microbatches(void **unused)
{
    (void)unused;
    ap_ctx *any = ap_ctx_create();
    bool there = exists(index_path(any));
    ap_ctx_release(any);
    if (!there)
        skip();
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        ap_ctx *ctx = ap_ctx_create();
        const char *refusal = cases[i / 2].refusal;
        ap_status s =
            check_one(ctx, cases[i / 2].model, cases[i / 2].dim, cases[i / 2].batch, cases[i / 2].microbatches, i % 2);
        bool said = refusal && ctx->diags.len && strstr(ap_diag_str(ctx, &ctx->diags.at[0]), refusal);
        if (refusal ? !said : s != AP_OK) {
            print_error("%s, %d microbatches of %d: status %d\n", cases[i / 2].model, cases[i / 2].microbatches,
                        (int)cases[i / 2].batch, s);
            print_messages(ctx);
        }
        assert_true(refusal ? said && s != AP_OK : s == AP_OK);
        ap_ctx_release(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_agree_in_microbatches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

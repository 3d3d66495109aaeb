/* info: what a model is, before any planning. FLOPs count a multiply and an add as two. */
#include "driver/commands.h"

#include "driver/plan_file.h"
#include "ir/op.h"
#include "ir/text_form.h"
#include "passes/cluster.h"

#include <inttypes.h>

typedef struct figures {
    int64_t flops, contraction_flops, activation_bytes;
    uint32_t nodes, contractions;
} figures;

static void count(const ap_module *m, figures *out)
{
    const ap_block_info *body = ap_block_at(m, m->funcs.at[0].body);
    for (uint32_t i = 0; i < body->nodes.len; i++) {
        ap_node id = body->nodes.at[i];
        const ap_node_info *n = ap_node_at(m, id);
        if (ap_op_get(n->op)->terminator)
            continue;
        int64_t flops = ap_node_flops(m, id);
        out->nodes++;
        out->flops = ap_sat_add(out->flops, flops);
        if (ap_node_is_product(m, id)) {
            out->contractions++;
            out->contraction_flops = ap_sat_add(out->contraction_flops, flops);
        }
        for (uint32_t k = 0; k < n->nout && !ap_op_get(n->op)->shares_buffer; k++)
            out->activation_bytes =
                ap_sat_add(out->activation_bytes, ap_type_bytes(m->ctx, ap_value_type(m, n->out[k])));
    }
}

static const char *type_text(const ap_job *job, ap_type t)
{
    ap_text s;
    ap_text_init(&s, &job->ctx->scratch);
    ap_type_print(job->m, t, &s);
    return ap_text_str(&s);
}

static cJSON *ports_json(const ap_job *job, bool outputs)
{
    const ap_func_info *f = &job->m->funcs.at[0];
    cJSON *list = cJSON_CreateArray();
    for (uint32_t i = 0; i < (outputs ? f->nresults : f->narguments); i++) {
        ap_type type = outputs ? f->result[i] : ap_value_type(job->m, f->argument[i]);
        ap_name name = outputs ? f->result_name[i] : ap_value_at(job->m, f->argument[i])->name;
        const ap_shape_info *s = ap_type_shape(job->ctx, type);
        cJSON *o = cJSON_CreateObject(), *dims;
        cJSON_AddStringToObject(o, "name", ap_name_str(job->ctx, name));
        cJSON_AddStringToObject(o, "dtype", ap_dtype_str(ap_type_dtype(job->ctx, type)));
        dims = cJSON_AddArrayToObject(o, "shape");
        for (int d = 0; d < s->rank; d++)
            cJSON_AddItemToArray(dims, cJSON_CreateNumber((double)ap_shape_dim(s, d)));
        cJSON_AddItemToArray(list, o);
    }
    return list;
}

static ap_status print_json(const ap_job *job, const figures *x)
{
    cJSON *o = cJSON_CreateObject(), *ops;
    cJSON_AddNumberToObject(o, "ir_version", (double)job->info.ir_version);
    cJSON_AddNumberToObject(o, "opset", (double)job->info.opset);
    cJSON_AddStringToObject(o, "producer", job->info.producer ? job->info.producer : "");
    cJSON_AddNumberToObject(o, "onnx_nodes", job->info.onnx_nodes);
    cJSON_AddNumberToObject(o, "nodes", x->nodes);
    cJSON_AddNumberToObject(o, "parameters", (double)job->info.parameters);
    cJSON_AddNumberToObject(o, "parameter_bytes", (double)job->info.parameter_bytes);
    cJSON_AddNumberToObject(o, "flops", (double)x->flops);
    cJSON_AddNumberToObject(o, "contractions", x->contractions);
    cJSON_AddNumberToObject(o, "contraction_flops", (double)x->contraction_flops);
    cJSON_AddNumberToObject(o, "activation_bytes", (double)x->activation_bytes);
    cJSON_AddItemToObject(o, "inputs", ports_json(job, false));
    cJSON_AddItemToObject(o, "outputs", ports_json(job, true));
    ops = cJSON_AddObjectToObject(o, "operators");
    for (uint32_t i = 0; i < job->info.nops; i++)
        cJSON_AddNumberToObject(ops, job->info.op_name[i], job->info.op_count[i]);
    const char *text;
    AP_TRY(ap_json_text(job->ctx, o, &text));
    printf("%s\n", text);
    return AP_OK;
}

static void print_text(const ap_job *job, const figures *x)
{
    const ap_func_info *f = &job->m->funcs.at[0];
    printf("%s: ONNX IR %" PRId64 ", opset %" PRId64 "%s%s\n", job->opt->subject, job->info.ir_version, job->info.opset,
           job->info.producer && *job->info.producer ? ", made by " : "", job->info.producer ? job->info.producer : "");
    for (uint32_t i = 0; i < f->narguments; i++)
        printf("input   %-24s %s\n", ap_name_str(job->ctx, ap_value_at(job->m, f->argument[i])->name),
               type_text(job, ap_value_type(job->m, f->argument[i])));
    for (uint32_t i = 0; i < f->nresults; i++)
        printf("output  %-24s %s\n", ap_name_str(job->ctx, f->result_name[i]), type_text(job, f->result[i]));
    printf("parameters  %" PRId64 " (%" PRId64 " bytes)\n", job->info.parameters, job->info.parameter_bytes);
    printf("FLOPs       %" PRId64 ", of which contractions %" PRId64 " in %u nodes\n", x->flops, x->contraction_flops,
           x->contractions);
    printf("activations %" PRId64 " bytes, all values together\n", x->activation_bytes);
    printf("nodes       %u in ONNX, %u after import\n", job->info.onnx_nodes, x->nodes);
    printf("operators  ");
    for (uint32_t i = 0; i < job->info.nops; i++)
        printf(" %s:%u", job->info.op_name[i], job->info.op_count[i]);
    printf("\n");
}

ap_status ap_cmd_info(ap_ctx *ctx, const ap_options *opt)
{
    ap_job job;
    ap_status s = ap_job_import(ctx, opt, true, &job);
    if (s == AP_OK)
        s = ap_passes_run(ctx, job.m, "fold", NULL);
    figures x = {0};
    if (s == AP_OK) {
        count(job.m, &x);
        if (opt->json)
            s = print_json(&job, &x);
        else
            print_text(&job, &x);
    }
    ap_job_deinit(&job);
    return s;
}

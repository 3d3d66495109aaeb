/* program.c: the tables and functions of every stage, the channels between them, the program, and the API. */
#include "backend/cuda/cuda.h"
#include "backend/emit.h"

#include <inttypes.h>

/* The table of the API and that of the runtime: same text, other types. */
static void print_ports(const ap_emit *e, ap_text *t, const char *declaration, uint32_t n, const ap_port *port)
{
    ap_text_addf(t, "%s[%u] = {\n", declaration, n ? n : 1);
    for (uint32_t i = 0; i < n; i++) {
        ap_text_add(t, "    ");
        ap_emit_port(e, t, &port[i], NULL);
        ap_text_add(t, ",\n");
    }
    ap_text_add(t, n ? "};\n" : "    {0},\n};\n");
}

/* ---- stages ---- */

static int64_t scratch_bytes(const ap_emit *e)
{
    int64_t most = 0;
    for (uint32_t k = 0; k < e->p->kernels.len; k++)
        most =
            ap_max_i64(most, ap_emit_target(e) == AP_TARGET_CUDA ? ap_cuda_scratch_bytes(e, e->kernel_of[e->stage][k])
                                                                 : ap_emit_nest_scratch(&e->p->kernels.at[k]));
    return most;
}

static void print_axes(const ap_emit *e, ap_text *t)
{
    int64_t size[AP_MAX_AXES], stride[AP_MAX_AXES];
    for (int a = 0; a < e->p->naxes; a++) {
        size[a] = e->p->axis_size[a];
        stride[a] = e->p->axis_stride[a];
    }
    ap_text_addf(t, "        .naxes = %d,\n        .axis_size = ", e->p->naxes);
    ap_emit_list(t, e->p->naxes, size);
    ap_text_add(t, ",\n        .axis_stride = ");
    ap_emit_list(t, e->p->naxes, stride);
    ap_text_add(t, ",\n");
}

static void print_table(const ap_emit *e, ap_text *t, const char *field, const char *table, uint32_t n)
{
    if (n)
        ap_text_addf(t, "        .n%s = %u,\n        .%s = %s%s,\n", table, n, field, ap_emit_prefix(e), table);
}

static void print_ports_of_stage(const ap_emit *e, ap_text *t, const char *field, uint32_t n)
{
    if (n)
        ap_text_addf(t, "        .n%ss = %u,\n        .%s = %s%s_numbers,\n", field, n, field, ap_emit_prefix(e),
                     field);
}

static void print_target(const ap_emit *e, ap_text *t)
{
    uint32_t exchanges = 0;
    bool library = false;
    for (uint32_t i = 0; i < e->p->instrs.len; i++)
        exchanges += e->p->instrs.at[i].kind == AP_INSTR_EXCHANGE;
    for (uint32_t k = 0; k < e->p->kernels.len; k++)
        library = library || e->p->kernels.at[k].kind == AP_KERNEL_GEMM || e->p->kernels.at[k].kind == AP_KERNEL_CONV;
    ap_text_add(t, "        .target = &aprt_target_cuda,\n");
    if (library)
        ap_text_add(t, "        .workspace_bytes = APRT_CUDA_WORKSPACE,\n");
    print_table(e, t, "exchange", "exchanges", exchanges);
}

static void print_stage(const ap_emit *e, ap_text *t, uint32_t nwritten)
{
    const ap_local *p = e->p;
    const char *prefix = ap_emit_prefix(e);
    ap_text_add(t, "    {\n        .name = ");
    ap_emit_string(t, ap_name_str(e->ctx, p->name));
    ap_text_addf(t, ",\n        .first_rank = %d,\n        .nranks = %d,\n", p->first_rank, p->nranks);
    print_axes(e, t);
    ap_text_addf(t,
                 "        .arena_bytes = %" PRId64 ",\n        .param_bytes = %" PRId64
                 ",\n        .scratch_bytes = %" PRId64 ",\n",
                 ap_program_arena_bytes(e->program, e->stage), ap_local_kept_bytes(p), scratch_bytes(e));
    print_ports_of_stage(e, t, "input", p->inputs.len);
    print_ports_of_stage(e, t, "output", p->outputs.len);
    print_table(e, t, "param", "params", p->params.len);
    print_table(e, t, "group", "groups", p->groups.len);
    print_table(e, t, "instr", "instrs", p->instrs.len);
    ap_text_addf(t, "        .run = %srun,\n        .list = %slist,\n", prefix, prefix);
    const uint32_t slots = ap_emit_conv_slots(e);
    const bool cuda = ap_emit_target(e) == AP_TARGET_CUDA;
    if (ap_emit_prepares(e)) /* one slot more is what convolutions share */
        ap_text_addf(t,
                     "        .nslots = %u,\n        .prepare = %sprepare,\n        .release = aprt_%sconv_release,\n",
                     slots ? slots + 1 : 0, prefix, cuda ? "cuda_" : "");
    print_table(e, t, "written", "written", nwritten);
    if (cuda)
        print_target(e, t);
    ap_text_add(t, "    },\n");
}

/* ---- the program and the API ---- */

static void print_program(const ap_emit *e, ap_text *t)
{
    const ap_program *g = e->program;
    ap_text_addf(t,
                 "\nconst aprt_program %s_program = {\n    .abi = APRT_ABI,\n    .name = \"%s\",\n    .nranks = %d,\n"
                 "    .microbatches = %d,\n    .ninputs = %u,\n    .noutputs = %u,\n    .input = input_ports,\n"
                 "    .output = output_ports,\n    .nstages = %u,\n    .stage = stages,\n",
                 e->opt->name, e->opt->name, g->nranks, g->microbatches, g->inputs.len, g->outputs.len, g->stages.len);
    if (g->channels.len)
        ap_text_addf(t, "    .nchannels = %u,\n    .channel = channels,\n", g->channels.len);
    if (g->run_ps)
        ap_text_add(t, "    .run_ps = run_ps,\n");
    if (g->move_ps && g->channels.len)
        ap_text_add(t, "    .move_ps = move_ps,\n");
    ap_text_add(t, "};\n");
}

static void print_api(const ap_emit *e, ap_text *t)
{
    const char *n = e->opt->name;
    ap_text_addf(t,
                 "\nint %s_open(const %s_options *options, %s_instance **out)\n{\n"
                 "    aprt_options o = {.weights = options ? options->weights : NULL};\n"
                 "    aprt_instance *instance;\n"
                 "    int status = aprt_open(&%s_program, &o, &instance);\n"
                 "    *out = (%s_instance *)instance;\n"
                 "    return status;\n}\n",
                 n, n, n, n, n);
    ap_text_addf(t,
                 "\nint %s_run(%s_instance *instance, const void *const inputs[], void *const outputs[])\n{\n"
                 "    return aprt_run((aprt_instance *)instance, inputs, outputs);\n}\n",
                 n, n);
    ap_text_addf(t, "\nvoid %s_close(%s_instance *instance)\n{\n    aprt_close((aprt_instance *)instance);\n}\n", n, n);
    ap_text_addf(t,
                 "\nconst char *%s_error(const %s_instance *instance)\n{\n"
                 "    return aprt_error((const aprt_instance *)instance);\n}\n",
                 n, n);
}

static void print_all_ports(const ap_emit *e, ap_text *t)
{
    const ap_program *g = e->program;
    ap_text type;
    for (int api = 0; api < 2; api++)
        for (int output = 0; output < 2; output++) {
            ap_text_init(&type, &e->ctx->scratch);
            if (api)
                ap_text_addf(&type, "\nconst %s_tensor %s_%s", e->opt->name, e->opt->name, output ? "output" : "input");
            else
                ap_text_addf(&type, "\nstatic const aprt_port %s", output ? "output_ports" : "input_ports");
            if (output)
                print_ports(e, t, ap_text_str(&type), g->outputs.len, g->outputs.at);
            else
                print_ports(e, t, ap_text_str(&type), g->inputs.len, g->inputs.at);
        }
}

ap_status ap_emit_program(ap_emit *e)
{
    ap_text t, stages;
    ap_text_init(&t, &e->ctx->scratch);
    ap_text_init(&stages, &e->ctx->scratch);
    ap_emit_top(e, &t, "the program");
    ap_text_addf(&t, "#include \"%s.h\"\n#include \"kernels.h\"\n", e->opt->name);
    if (ap_emit_has_target(e, AP_TARGET_CPU) && ap_emit_has_target(e, AP_TARGET_CUDA))
        ap_text_addf(&t, "#include \"%s\"\n", ap_cuda_kernels_header(e));
    print_all_ports(e, &t);
    ap_emit_macros(&t);
    if (e->program->stages.len > 1 || e->program->microbatches > 1)
        ap_text_add(&t, "#define TRY(call) \\\n    do { \\\n        int status_ = (call); \\\n        if (status_ != "
                        "APRT_OK) \\\n            return status_; \\\n    } while (0)\n");
    for (uint32_t s = 0; s < e->program->stages.len; s++) {
        uint32_t written;
        ap_emit_turn(e, s);
        AP_TRY(ap_emit_tables(e, &t, &written));
        ap_emit_run(e, &t);
        ap_emit_list_function(e, &t);
        ap_emit_prepare(e, &t);
        ap_emit_port_numbers(e, &t);
        print_stage(e, &stages, written);
    }
    ap_emit_channels(e, &t);
    ap_emit_predicted(e, &t);
    ap_text_addf(&t, "\nstatic const aprt_stage stages[] = {\n%s};\n", ap_text_str(&stages));
    print_program(e, &t);
    print_api(e, &t);
    return ap_emit_file(e, "program.c", &t);
}

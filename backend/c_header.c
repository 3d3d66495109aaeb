/* NAME.h: what an application sees of a compiled model. Standalone, for C and C++. */
#include "backend/emit.h"

#include <inttypes.h>

static void print_ports(const ap_emit *e, ap_text *t, const char *title, uint32_t n, const ap_port *port)
{
    ap_text_addf(t, " * %s, in order:\n", title);
    for (uint32_t i = 0; i < n; i++) {
        ap_text_addf(t, " *   %u  ", i);
        ap_emit_comment(t, ap_name_str(e->ctx, port[i].name), false);
        ap_text_addf(t, "  %s[", ap_dtype_str(port[i].dtype));
        for (int d = 0; d < port[i].rank; d++)
            ap_text_addf(t, "%s%" PRId64, d ? "," : "", port[i].dim[d]);
        ap_text_add(t, "]\n");
    }
    if (n == 0)
        ap_text_add(t, " *   none\n");
}

/* Text in which @ stands for the name of the model. */
static void print_template(const ap_emit *e, ap_text *t, const char *s)
{
    for (; *s; s++) {
        if (*s == '@')
            ap_text_add(t, e->opt->name);
        else
            ap_text_add_n(t, s, 1);
    }
}

static const char declarations[] =
    "#include <stddef.h>\n"
    "#include <stdint.h>\n"
    "\n"
    "#ifdef __cplusplus\n"
    "extern \"C\" {\n"
    "#endif\n"
    "\n"
    "/* The model opened: memory, threads and loaded weights. Any number may be open; they share nothing. Calls on "
    "one\n"
    " * instance wait for each other, so that it may be used from several threads. */\n"
    "typedef struct @_instance @_instance;\n"
    "\n"
    "typedef struct @_options {\n"
    "    const char *weights; /* path; NULL: weights.safetensors beside the running program */\n"
    "} @_options;\n"
    "\n"
    "typedef struct @_tensor {\n"
    "    const char *name;\n"
    "    int dtype; /* as in ONNX: 1 f32, 2 u8, 3 i8, 4 u16, 5 i16, 6 i32, 7 i64, 9 bool, 10 f16, 11 f64, 12 u32, 13 "
    "u64,\n"
    "                  16 bf16 */\n"
    "    int rank;\n"
    "    int64_t dim[8];\n"
    "} @_tensor;\n"
    "\n";

static const char functions[] =
    "/* All return 0, or: 1 the data is wrong (an index out of range), 2 a wrong call, 4 the environment failed "
    "(file,\n"
    " * memory, threads), 70 a bug. */\n"
    "\n"
    "/* options may be NULL. After a failure *out only tells the error, and must be closed all the same. */\n"
    "int @_open(const @_options *options, @_instance **out);\n"
    "\n"
    "/* One pointer per input and output, to whole tensors, row-major, little-endian, that do not overlap. After "
    "status 1 the\n"
    " * outputs are undefined and the instance may be used again; after any other failure it can only be closed. */\n"
    "int @_run(@_instance *instance, const void *const inputs[], void *const outputs[]);\n"
    "\n"
    "void @_close(@_instance *instance); /* NULL is ignored */\n"
    "\n"
    "/* Text of the last failure of this instance, \"\" if none; valid until the next call. */\n"
    "const char *@_error(const @_instance *instance);\n"
    "\n"
    "/* For the runtime (autopar_rt.h). */\n"
    "extern const struct aprt_program @_program;\n"
    "\n"
    "#ifdef __cplusplus\n"
    "}\n"
    "#endif\n"
    "\n"
    "#endif\n";

/* What each device of a stage needs. */
static void print_memory(const ap_emit *e, ap_text *t)
{
    const ap_local *p = e->p;
    int64_t arena = ap_program_arena_bytes(e->program, e->stage), kept = ap_local_kept_bytes(p);
    ap_text_add(t, " * ");
    if (e->program->stages.len > 1) {
        ap_text_add(t, "Stage ");
        ap_emit_comment(t, ap_name_str(e->ctx, p->name), false);
        ap_text_add(t, ": ");
    }
    ap_text_addf(t,
                 "%d device%s, each with %" PRId64 " bytes of arena (%" PRId64 " are live at one time) and %" PRId64
                 " of parameters; libraries prepare %" PRId64 " more.\n",
                 p->nranks, p->nranks == 1 ? "" : "s", arena, ap_sat_add(p->live_bytes, arena - p->arena_bytes), kept,
                 p->param_bytes - kept);
    if (ap_emit_target(e) == AP_TARGET_CUDA)
        ap_text_add(t, " * On GPUs; products and convolutions share 32 MiB of workspace besides.\n");
}

ap_status ap_emit_header(ap_emit *e)
{
    const ap_program *p = e->program;
    ap_text t, file;
    ap_text_init(&t, &e->ctx->scratch);
    ap_text_init(&file, &e->ctx->scratch);
    ap_emit_top(e, &t, "what an application needs");
    ap_text_add(&t, "/*\n");
    print_ports(e, &t, "Inputs", p->inputs.len, p->inputs.at);
    print_ports(e, &t, "Outputs", p->outputs.len, p->outputs.at);
    for (uint32_t s = 0; s < p->stages.len; s++) {
        ap_emit_turn(e, s);
        print_memory(e, &t);
    }
    if (p->microbatches > 1)
        ap_text_addf(&t, " * One run is %d microbatches.\n", p->microbatches);
    ap_text_add(&t, " */\n");
    print_template(e, &t, "#ifndef @_H\n#define @_H\n\n");
    print_template(e, &t, declarations);
    ap_text_addf(&t, "enum { %s_DEVICES = %d, %s_INPUTS = %u, %s_OUTPUTS = %u };\n", e->opt->name, p->nranks,
                 e->opt->name, p->inputs.len, e->opt->name, p->outputs.len);
    ap_text_addf(&t, "extern const %s_tensor %s_input[%u], %s_output[%u];\n\n", e->opt->name, e->opt->name,
                 p->inputs.len ? p->inputs.len : 1, e->opt->name, p->outputs.len ? p->outputs.len : 1);
    print_template(e, &t, functions);
    ap_text_addf(&file, "%s.h", e->opt->name);
    return ap_emit_file(e, ap_text_str(&file), &t);
}

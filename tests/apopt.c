/* apopt: passes on text, for tests.
 *
 *     apopt FILE.ap [--passes=LIST] [--local] [--print-only] [--no-verify] [--check] [--read-local]
 *
 * Reads a module, verifies it, runs the passes, verifies after each, prints. --local lowers to a local
 * program and prints that. A file that begins with `pipeline` or `program` is read, verified and printed as one; with
 * --local a pipeline becomes a program. --print-only reads and prints. --check also evaluates after every pass and
 * compares. --read-local reads a local program instead, verifies and prints it. --verify is the default. The exit code
 * is that of the status; messages go to standard error.
 */
#include "ir/base/file.h"
#include "ir/lex.h"
#include "ir/local.h"
#include "ir/pipeline.h"
#include "ir/text_form.h"
#include "passes/check.h"
#include "passes/pipe/lower.h"

#include <string.h>

typedef struct options {
    const char *file, *passes;
    bool local, print_only, no_verify, check, read_local;
} options;

static ap_status usage(void)
{
    fputs("usage: apopt FILE [--passes=LIST] [--local] [--print-only] [--verify|--no-verify] [--check] "
          "[--read-local]\n",
          stderr);
    return AP_ERR_USAGE;
}

static ap_status read_options(int argc, char **argv, options *o)
{
    *o = (options){.passes = ""};
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--passes=", 9) == 0)
            o->passes = argv[i] + 9;
        else if (strcmp(argv[i], "--local") == 0)
            o->local = true;
        else if (strcmp(argv[i], "--print-only") == 0)
            o->print_only = true;
        else if (strcmp(argv[i], "--no-verify") == 0 || strcmp(argv[i], "--verify") == 0)
            o->no_verify = argv[i][2] == 'n';
        else if (strcmp(argv[i], "--check") == 0)
            o->check = true;
        else if (strcmp(argv[i], "--read-local") == 0)
            o->read_local = true;
        else if (argv[i][0] == '-' || o->file)
            return usage();
        else
            o->file = argv[i];
    }
    return o->file ? AP_OK : usage();
}

static const char *stem(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static ap_status verify_after(void *user, ap_ctx *ctx, const char *pass, ap_module *m)
{
    const options *o = user;
    if (o->no_verify)
        return AP_OK;
    ap_status s = ap_module_verify(m);
    return s == AP_OK ? AP_OK : ap_fail(ctx, s, 0, "the module does not verify after pass '%s'", pass);
}

static ap_status run_passes(ap_ctx *ctx, const options *o, ap_module *m, ap_check *check)
{
    ap_pass_hook hook = {.after = verify_after, .user = (void *)(uintptr_t)o};
    if (o->check)
        hook = (ap_pass_hook){.after = ap_check_after, .user = check};
    return ap_passes_run(ctx, m, o->passes, &hook);
}

static ap_status lower_and_print(ap_ctx *ctx, const options *o, ap_module *m, ap_check *check, ap_text *out)
{
    ap_local *p;
    AP_TRY(ap_lower_local(ctx, m, "program", &p));
    if (!o->no_verify)
        AP_TRY(ap_local_verify(p));
    if (o->check)
        AP_TRY(ap_check_local(check, ctx, p));
    ap_local_print(p, out);
    return AP_OK;
}

static ap_status process_local(ap_ctx *ctx, const options *o, const ap_file *f, ap_text *out)
{
    ap_local *p;
    AP_TRY(ap_local_parse(ctx, stem(o->file), (const char *)f->data, f->size, &p));
    if (!o->print_only && !o->no_verify)
        AP_TRY(ap_local_verify(p));
    ap_local_print(p, out);
    return AP_OK;
}

static bool begins_with(ap_ctx *ctx, const ap_file *f, const char *word)
{
    ap_lex l;
    ap_lex_init(&l, ctx, NULL, (const char *)f->data, f->size);
    return ap_lex_accept_word(&l, word);
}

static ap_status print_program(const options *o, ap_program *g, ap_text *out)
{
    if (!o->print_only && !o->no_verify)
        AP_TRY(ap_program_verify(g));
    ap_program_print(g, out);
    return AP_OK;
}

/* On this machine, all ranks on one host. */
static ap_status lower_pipeline(ap_ctx *ctx, const options *o, ap_pipeline *p, ap_text *out)
{
    ap_cluster c;
    ap_program *g;
    ap_cluster_local(p->nranks, &c);
    AP_TRY(ap_pipe_explicit(ctx, p, &c));
    AP_TRY(ap_lower_program(ctx, p, NULL, ap_name_str(ctx, p->name), &g));
    return print_program(o, g, out);
}

static ap_status process_pipeline(ap_ctx *ctx, const options *o, const ap_file *f, ap_text *out)
{
    ap_pipeline *p;
    AP_TRY(ap_pipeline_parse(ctx, stem(o->file), (const char *)f->data, f->size, &p));
    if (!o->print_only && !o->no_verify)
        AP_TRY(ap_pipeline_verify(p));
    if (o->local && !o->print_only)
        return lower_pipeline(ctx, o, p, out);
    ap_pipeline_print(p, out);
    return AP_OK;
}

static ap_status process_program(ap_ctx *ctx, const options *o, const ap_file *f, ap_text *out)
{
    ap_program *g;
    AP_TRY(ap_program_parse(ctx, stem(o->file), (const char *)f->data, f->size, &g));
    return print_program(o, g, out);
}

static ap_status process(ap_ctx *ctx, const options *o, const ap_file *f, ap_text *out)
{
    ap_module *m;
    ap_check check = {0};
    if (o->read_local)
        return process_local(ctx, o, f, out);
    if (begins_with(ctx, f, "pipeline"))
        return process_pipeline(ctx, o, f, out);
    if (begins_with(ctx, f, "program"))
        return process_program(ctx, o, f, out);
    AP_TRY(ap_module_parse(ctx, stem(o->file), (const char *)f->data, f->size, &m));
    if (!o->print_only && !o->no_verify)
        AP_TRY(ap_module_verify(m));
    if (o->check)
        AP_TRY(ap_check_init(ctx, m, NULL, &check));
    ap_status s = o->print_only ? AP_OK : run_passes(ctx, o, m, &check);
    if (s == AP_OK && o->local && !o->print_only)
        s = lower_and_print(ctx, o, m, &check, out);
    else if (s == AP_OK)
        ap_module_print(m, out);
    if (o->check)
        ap_check_deinit(&check);
    return s;
}

int main(int argc, char **argv)
{
    options o;
    ap_file f = {0};
    ap_text out;
    if (read_options(argc, argv, &o) != AP_OK)
        return AP_ERR_USAGE;
    ap_ctx *ctx = ap_ctx_create();
    if (!ctx)
        return AP_ERR_ENV;
    ap_text_init(&out, &ctx->arena);
    ap_status s = ap_file_map(ctx, o.file, &f);
    if (s == AP_OK)
        s = process(ctx, &o, &f, &out);
    for (uint32_t i = 0; i < ctx->diags.len; i++)
        fprintf(stderr, "%s\n", ap_diag_str(ctx, &ctx->diags.at[i]));
    fputs(ap_text_str(&out), stdout);
    if (f.data)
        ap_file_unmap(&f);
    ap_ctx_release(ctx);
    return (int)s;
}

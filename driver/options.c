/* Parsing the command line, and its help: both read the two tables below, as do manual and completion (cmd_help.c). */
#include "driver/options.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define BIT(c) (1u << AP_CMD_##c)
#define PLANNING (BIT(COMPILE) | BIT(PLAN) | BIT(RUN) | BIT(DUMP))
#define IMPORTING (PLANNING | BIT(INFO))
#define EVERYWHERE 0xffffffu

typedef enum option_kind { FLAG, COUNT, TEXT, LIST } option_kind;

static const struct option_row {
    const char *name;
    char letter;
    const char *argument; /* NULL for flags */
    option_kind kind;
    size_t offset;
    uint32_t commands;
    const char *help;
} options[] = {
#define OPT(field) offsetof(ap_options, field)
    {"output", 'o', "PATH", TEXT, OPT(output), BIT(COMPILE) | BIT(PLAN),
     "compile: folder to make; plan: file to write"},
    {"output", 'o', "FILE", TEXT, OPT(output), BIT(SOLVE), "write the solution there as well"},
    {"output", 'o', "CLUSTER.yaml", TEXT, OPT(output), BIT(PROFILE),
     "where the cluster goes (default: standard output)"},
    {"timeout", 0, "S", TEXT, OPT(timeout), BIT(SOLVE),
     "seconds until the answer, reading included (0: until it is proven); SIGINT and SIGTERM ask for it at once"},
    {"devices", 0, "N", TEXT, OPT(devices), PLANNING, "CPU devices of this machine (default 1)"},
    {"devices", 0, "N", TEXT, OPT(devices), BIT(PROFILE),
     "devices that work at the same time (default: one per processor)"},
    {"quick", 0, NULL, FLAG, OPT(quick), BIT(PROFILE), "few and small cases: seconds instead of a minute, less exact"},
    {"cluster", 0, "FILE|PRESET[:HOSTS[xDEVICES]]", TEXT, OPT(cluster), PLANNING,
     "plan for a machine described in a YAML file, or known by name"},
    {"mesh", 0, "auto|AxB[xC]|name=A,name=B", TEXT, OPT(mesh), PLANNING,
     "axes of the mesh, that of each stage (auto: one, or hosts x devices of a host)"},
    {"stages", 0, "auto|N", TEXT, OPT(stages), PLANNING,
     "stages of the pipeline, each on a mesh of its own; auto: as many as are best (default: one on one host "
     "or with --mesh, else auto)"},
    {"microbatches", 0, "auto|N", TEXT, OPT(microbatches), PLANNING,
     "equal parts in which the batch goes through the stages"},
    {"objective", 0, "throughput|latency", TEXT, OPT(objective), PLANNING,
     "what plans of several stages are chosen by (default throughput)"},
    {"memory", 0, "BYTES", TEXT, OPT(memory), PLANNING, "limit per device: 16GB, 512MiB, 100000"},
    {"pin", 0, "FILE", TEXT, OPT(pin), PLANNING,
     "what to keep: `value PATTERN SHARDING`, `value PATTERN forbid AXIS`, `node PATTERN stage=K`"},
    {"split", 0, "force", TEXT, OPT(split), PLANNING, "force: replicate only what cannot be split"},
    {"plan", 0, "PLAN.json", TEXT, OPT(plan), BIT(COMPILE) | BIT(RUN), "use this plan as it is"},
    {"time-limit", 0, "S", TEXT, OPT(time_limit), PLANNING,
     "seconds for the solver; the plan then depends on the machine"},
    {"budget", 0, "WORK", TEXT, OPT(budget), PLANNING | BIT(SOLVE),
     "work of the solver, about microseconds; the answer depends on nothing else (default 10000000)"},
    {"threads", 0, "N", TEXT, OPT(threads), PLANNING | BIT(SOLVE),
     "threads of the solver (default: one per processor); answers under --budget do not depend on it"},
    {"dump-problem", 0, "FILE", TEXT, OPT(dump_problem), BIT(PLAN), "write what the solver is asked, for `solve`"},
    {"dim", 0, "NAME=SIZE", LIST, OPT(dim), IMPORTING, "size of a symbolic dimension; may be repeated"},
    {"batch", 0, "N", TEXT, OPT(batch), IMPORTING, "size of the whole batch"},
    {"batch-dim", 0, "NAME|INPUT:AXIS", TEXT, OPT(batch_dim), IMPORTING,
     "which dimension --batch binds (default: axis 0 of all inputs, or named batch or N)"},
    {"shapes-from", 0, "DIR", TEXT, OPT(shapes_from), IMPORTING,
     "take input shapes from an ONNX test data set (input_0.pb, ...)"},
    {"name", 0, "PREFIX", TEXT, OPT(name), BIT(COMPILE), "prefix of the C API (default: from the file name)"},
    {"target", 0, "cpu|cuda", TEXT, OPT(target), BIT(COMPILE) | BIT(RUN),
     "what to emit for; cuda: GPUs of the cluster, or --devices N of this machine, priced as H100"},
    {"target", 0, "cpu|cuda", TEXT, OPT(target), BIT(PROFILE), "processors (default), or the GPUs of this machine"},
    {"codegen", 0, "c|llvm", TEXT, OPT(codegen), BIT(COMPILE),
     "text for a C compiler (default), or object files, where LLVM is built in"},
    {"codegen", 0, "c|llvm", TEXT, OPT(codegen), BIT(RUN),
     "by a C compiler into a temporary folder, or by LLVM into this process (default where it is built in)"},
    {"codegen", 0, "c|llvm", TEXT, OPT(codegen), BIT(PROFILE),
     "measure what a C compiler makes of kernels (default), or LLVM in this process"},
    {"march", 0, "CPU", TEXT, OPT(march), BIT(COMPILE) | BIT(RUN),
     "-march of the C compiler, or LLVM's name of a processor (default native); sm_NN with --target cuda: code for "
     "that "
     "GPU only"},
    {"weights", 0, "FORM", TEXT, OPT(weights), BIT(COMPILE),
     "copy into the folder, reference to the model's own files, or sliced: a file per device"},
    {"emit-only", 0, NULL, FLAG, OPT(emit_only), BIT(COMPILE),
     "write the sources, or object files of LLVM; do not build them"},
    {"force", 0, NULL, FLAG, OPT(force), BIT(COMPILE), "replace a folder that autopar made"},
    {"check-passes", 0, NULL, FLAG, OPT(check_passes), PLANNING,
     "verify and evaluate the program after every pass (slow)"},
    {"input", 0, "NAME=FILE", LIST, OPT(input), BIT(RUN), "an input: .npy or .pb; may be repeated"},
    {"output-dir", 0, "D", TEXT, OPT(output_dir), BIT(RUN), "where outputs go (default: the current folder)"},
    {"repeat", 0, "N", TEXT, OPT(repeat), BIT(RUN), "run N times and tell the median"},
    {"profile", 0, NULL, FLAG, OPT(profile), BIT(RUN), "time per instruction"},
    {"trace", 0, "T.json", TEXT, OPT(trace), BIT(RUN), "write the last run as a trace for Perfetto"},
    {"launcher", 0, "local|mpi", TEXT, OPT(launcher), BIT(RUN) | BIT(CHECK),
     "ranks are threads of one process, or processes started by mpirun (default local)"},
    {"hosts", 0, "FILE", TEXT, OPT(hosts), BIT(RUN) | BIT(CHECK),
     "hostfile of mpirun: HOST slots=N, in the order of ranks"},
    {"data", 0, "DIR", TEXT, OPT(data), BIT(CHECK), "an ONNX test data set: input_I.pb, output_I.pb"},
    {"rtol", 0, "X", TEXT, OPT(rtol), BIT(CHECK), "relative tolerance (default 1e-3)"},
    {"atol", 0, "X", TEXT, OPT(atol), BIT(CHECK), "absolute tolerance (default 1e-5)"},
    {"format", 0, "text|json|ir|dot|trace", TEXT, OPT(format), BIT(DUMP), "what to print (default text; a model: ir)"},
    {"format", 0, "text|md", TEXT, OPT(format), BIT(OPS), "how to print (default text)"},
    {"tables", 0, "PART", TEXT, OPT(tables), BIT(HELP), NULL}, /* not shown: see cmd_help.c */
    {"state", 0, "NAME", TEXT, OPT(state), BIT(DUMP), "imported, normal, planned, explicit or local"},
    {"state", 0, "planned|local", TEXT, OPT(state), BIT(SIMULATE),
     "times of planned nodes, or of the lowered program (default for CPUs)"},
    {"stage", 0, "K", TEXT, OPT(stage), BIT(DUMP), "one stage only, from 0 (with --format ir)"},
    {"json", 0, NULL, FLAG, OPT(json), EVERYWHERE, "print one JSON object"},
    {"verbose", 'v', NULL, COUNT, OPT(verbose), EVERYWHERE, "say more"},
    {"quiet", 'q', NULL, FLAG, OPT(quiet), EVERYWHERE, "say nothing but errors and results"},
    {"help", 'h', NULL, FLAG, OPT(help), EVERYWHERE, "this text"},
    {"version", 0, NULL, FLAG, OPT(version), EVERYWHERE, "the version and what is built in"},
#undef OPT
};
#define NOPTIONS (sizeof options / sizeof *options)

static const struct command_row {
    const char *name, *subject, *help;
} commands[AP_CMD_COUNT] = {
    [AP_CMD_COMPILE] = {"compile", "MODEL.onnx -o DIR", "plan a model and write, build the program that runs it"},
    [AP_CMD_PLAN] = {"plan", "MODEL.onnx [-o PLAN.json]", "plan only: no code, weights are not read"},
    [AP_CMD_RUN] = {"run", "DIR|MODEL.onnx", "run a compiled model, or compile and run one"},
    [AP_CMD_CHECK] = {"check", "DIR --data TEST_DATA_SET_DIR", "run and compare: |a-b| <= atol + rtol*|b|"},
    [AP_CMD_DUMP] = {"dump", "DIR|PLAN.json|MODEL.onnx", "print the plan, or the program in one of its states"},
    [AP_CMD_SIMULATE] = {"simulate", "DIR|PLAN.json", "time, bubble, exposed communication, memory over time"},
    [AP_CMD_SOLVE] = {"solve", "PROBLEM.json[.gz]", "the solver by itself, on problems in the format of IOPDDL"},
    [AP_CMD_PROFILE] = {"profile", "", "measure this machine and write it as a cluster for --cluster"},
    [AP_CMD_INFO] = {"info", "MODEL.onnx", "operators, shapes, parameters, FLOPs, bytes"},
    [AP_CMD_OPS] = {"ops", "", "operators: which of ONNX are understood, and the core that they become"},
    [AP_CMD_HELP] = {"help", "[COMMAND]", "this text, or that of one command"},
};

const char *ap_command_str(ap_command c)
{
    return commands[c].name;
}

static void print_option(FILE *f, const struct option_row *o)
{
    char left[64];
    snprintf(left, sizeof left, "%s%c%s--%s%s%s", o->letter ? "-" : "  ", o->letter ? o->letter : ' ',
             o->letter ? ", " : " ", o->name, o->argument ? " " : "", o->argument ? o->argument : "");
    fprintf(f, "  %-38s %s\n", left, o->help);
}

void ap_help_print(FILE *f, ap_command command)
{
    if (command == AP_CMD_COUNT) {
        fprintf(f, "autopar: an automatic parallelization compiler for ONNX models\n\nusage:\n");
        for (int c = 0; c < AP_CMD_COUNT; c++)
            fprintf(f, "  autopar %-8s %-30s %s\n", commands[c].name, commands[c].subject, commands[c].help);
        fprintf(f, "\n`autopar help COMMAND` lists the options of a command.\n\n"
                   "exit codes: 0 done; 1 the model, data, plan or comparison is wrong; 2 bad usage; 3 no plan fits;\n"
                   "4 the environment failed (file, memory, disk, peer); 70 a bug of ours\n");
        return;
    }
    fprintf(f, "usage: autopar %s%s%s [options]\n%s\n\noptions:\n", commands[command].name,
            *commands[command].subject ? " " : "", commands[command].subject, commands[command].help);
    for (size_t i = 0; i < NOPTIONS; i++)
        if (options[i].help && options[i].commands >> command & 1)
            print_option(f, &options[i]);
}

bool ap_option_text_at(uint32_t i, ap_option_text *out)
{
    if (i >= NOPTIONS)
        return false;
    *out =
        (ap_option_text){options[i].name, options[i].letter, options[i].argument, options[i].help, options[i].commands};
    return true;
}

const char *ap_command_subject(ap_command c)
{
    return commands[c].subject;
}

const char *ap_command_help(ap_command c)
{
    return commands[c].help;
}

/* ---- parsing ---- */

/* The row of this command, if it has one; else one of another. */
static const struct option_row *find_option(ap_command command, const char *name, size_t n, char letter)
{
    const struct option_row *found = NULL;
    for (size_t i = 0; i < NOPTIONS; i++) {
        const struct option_row *o = &options[i];
        bool same = letter ? o->letter == letter : strlen(o->name) == n && strncmp(o->name, name, n) == 0;
        if (same && (!found || o->commands >> command & 1))
            found = o;
    }
    return found;
}

static void store(ap_ctx *ctx, ap_options *out, const struct option_row *o, const char *value)
{
    char *field = (char *)out + o->offset;
    switch (o->kind) {
    case FLAG:
        *(bool *)(void *)field = true;
        break;
    case COUNT:
        ++*(int *)(void *)field;
        break;
    case TEXT:
        *(const char **)(void *)field = value;
        break;
    case LIST:
        ap_vec_push(&ctx->arena, &((ap_option_list *)(void *)field)->item, value);
        break;
    }
}

static ap_status parse_option(ap_ctx *ctx, int argc, char **argv, int *i, ap_options *out)
{
    const char *s = argv[*i];
    bool is_long = s[1] == '-';
    size_t n = strcspn(s, "=");
    const struct option_row *o =
        is_long ? find_option(out->command, s + 2, n - 2, 0) : find_option(out->command, NULL, 0, s[1]);
    if (!o || (!is_long && s[2]))
        return ap_fail(ctx, AP_ERR_USAGE, 0, "unknown option '%.*s'", (int)n, s);
    if (!(o->commands >> out->command & 1))
        return ap_fail(ctx, AP_ERR_USAGE, 0, "option '--%s' does not belong to '%s'", o->name,
                       commands[out->command].name);
    const char *value = is_long && s[n] ? s + n + 1 : NULL;
    if (!o->argument && value)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "option '--%s' takes no value", o->name);
    if (o->argument && !value) {
        if (*i + 1 >= argc)
            return ap_fail(ctx, AP_ERR_USAGE, 0, "option '--%s' needs a value: %s", o->name, o->argument);
        value = argv[++*i];
    }
    store(ctx, out, o, value);
    return AP_OK;
}

static bool find_command(const char *name, ap_command *out)
{
    for (int c = 0; c < AP_CMD_COUNT; c++)
        if (strcmp(commands[c].name, name) == 0) {
            *out = (ap_command)c;
            return true;
        }
    return false;
}

/* Files are replaced without a question, but not the one that is read. */
static ap_status keep_subject(ap_ctx *ctx, const ap_options *o)
{
    const char *const written[] = {o->output, o->dump_problem, o->trace};
    struct stat subject, st;
    if (!o->subject || stat(o->subject, &subject) != 0)
        return AP_OK;
    for (size_t i = 0; i < sizeof written / sizeof *written; i++)
        if (written[i] && stat(written[i], &st) == 0 && st.st_dev == subject.st_dev && st.st_ino == subject.st_ino)
            return ap_fail(ctx, AP_ERR_USAGE, 0, "%s: would be written over %s itself", written[i], o->subject);
    return AP_OK;
}

ap_status ap_options_parse(ap_ctx *ctx, int argc, char **argv, ap_options *out)
{
    memset(out, 0, sizeof *out);
    out->command = AP_CMD_HELP;
    out->program = argc > 0 ? argv[0] : "autopar";
    int i = 1;
    if (argc > 1 && argv[1][0] != '-') {
        if (!find_command(argv[1], &out->command))
            return ap_fail(ctx, AP_ERR_USAGE, 0, "unknown command '%s' (see `autopar help`)", argv[1]);
        i = 2;
    }
    for (; i < argc; i++) {
        if (argv[i][0] == '-' && argv[i][1]) {
            AP_TRY(parse_option(ctx, argc, argv, &i, out));
        } else if (!*commands[out->command].subject) {
            return ap_fail(ctx, AP_ERR_USAGE, 0, "'%s' takes no '%s'", commands[out->command].name, argv[i]);
        } else if (out->subject) {
            return ap_fail(ctx, AP_ERR_USAGE, 0, "one %s is expected, '%s' is too much", commands[out->command].subject,
                           argv[i]);
        } else {
            out->subject = argv[i];
        }
    }
    if (out->help || out->version || out->command == AP_CMD_HELP)
        return AP_OK;
    if (!out->subject && *commands[out->command].subject)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "usage: autopar %s %s", commands[out->command].name,
                       commands[out->command].subject);
    return keep_subject(ctx, out);
}

/* ---- values ---- */

ap_status ap_option_int(ap_ctx *ctx, const char *option, const char *text, int64_t lo, int64_t hi, int64_t *out)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno || end == text || *end || v < lo || v > hi)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "--%s: '%s' is not a whole number from %lld to %lld", option, text,
                       (long long)lo, (long long)hi);
    *out = v;
    return AP_OK;
}

ap_status ap_option_seconds(ap_ctx *ctx, const char *option, const char *text, double *out)
{
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || !isfinite(v) || v < 0)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "--%s: '%s' is not a number of 0 or more", option, text);
    *out = v;
    return AP_OK;
}

ap_status ap_option_bytes(ap_ctx *ctx, const char *option, const char *text, int64_t *out)
{
    static const struct {
        const char *unit;
        double bytes;
    } units[] = {{"", 1},      {"B", 1},        {"kB", 1e3},     {"KB", 1e3},     {"MB", 1e6},    {"GB", 1e9},
                 {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
    char *end;
    double v = strtod(text, &end);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (end != text && strcmp(end, units[i].unit) == 0 && v > 0 && v * units[i].bytes < 0x1p62) {
            *out = (int64_t)(v * units[i].bytes);
            return AP_OK;
        }
    return ap_fail(ctx, AP_ERR_USAGE, 0, "--%s: '%s' is not a size like 16GB, 512MiB or 100000", option, text);
}

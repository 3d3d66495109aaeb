/* SPDX-License-Identifier: MIT
 *
 * The main function of a compiled model: reads inputs, runs, writes outputs. */
#include "instance.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct request {
    const aprt_program *program;
    const aprt_options *given;
    const char *weights, *output_dir;
    int64_t repeat;
    bool profile;
    const char *trace; /* file, or NULL */
    const char **file; /* [ninputs], NULL: not given */
    aprt_tensor *input, *output;
    const void **in;
    void **out;
    double *seconds; /* [repeat] */
    bool quiet;      /* another process of the job prints and writes */
} request;

static int complain(const char *program, int status, const char *text)
{
    fprintf(stderr, "%s: %s\n", program, text);
    return status;
}

static void print_ports(FILE *f, const char *title, uint32_t n, const aprt_port *port)
{
    char shape[128];
    fprintf(f, "%s\n", title);
    for (uint32_t i = 0; i < n; i++) {
        aprt_shape_text(port[i].dtype, port[i].rank, port[i].dim, shape, sizeof shape);
        fprintf(f, "  %-24s %s\n", port[i].name, shape);
    }
}

static void print_help(const char *argv0, const aprt_program *p)
{
    printf("usage: %s [options] [FILE]...\n"
           "Runs the compiled model %s on %d device%s. Inputs are .npy files or ONNX TensorProto files (.pb),\n"
           "given by name or, without a name, in order.\n"
           "  --input NAME=FILE   the input NAME; also --input FILE\n"
           "  --output-dir D      write every output to D/NAME.npy\n"
           "  --repeat N          run N times and print the median time\n"
           "  --weights FILE      instead of weights.safetensors beside this program\n"
           "  --profile           print the time of every kernel and exchange\n"
           "  --trace FILE        write the last run as a trace for Perfetto\n"
           "  --ranks             print the number of devices\n"
           "  --help              this text\n"
           "Started by mpirun or srun, each process is one device; AUTOPAR_WATCHDOG=SECONDS bounds endless waits.\n",
           argv0, p->name, p->nranks, p->nranks == 1 ? "" : "s");
    print_ports(stdout, "inputs:", p->ninputs, p->input);
    print_ports(stdout, "outputs:", p->noutputs, p->output);
}

static int add_input(request *r, const char *text, aprt_failure *why)
{
    const aprt_program *p = r->program;
    const char *eq = strchr(text, '=');
    for (uint32_t i = 0; i < p->ninputs; i++) {
        /* a name may hold '=' itself, so it is compared as a whole */
        size_t n = strlen(p->input[i].name);
        if (strncmp(text, p->input[i].name, n) == 0 && text[n] == '=') {
            if (r->file[i])
                return aprt_fail(why, APRT_ERR_USAGE, "input \"%.100s\" is given twice", p->input[i].name);
            r->file[i] = text + n + 1;
            return APRT_OK;
        }
    }
    struct stat st;
    if (eq && stat(text, &st) != 0)
        return aprt_fail(why, APRT_ERR_USAGE, "the model has no input \"%.*s\" (see --help)",
                         (int)(eq - text < 100 ? eq - text : 100), text);
    for (uint32_t i = 0; i < p->ninputs; i++)
        if (!r->file[i]) {
            r->file[i] = text;
            return APRT_OK;
        }
    return aprt_fail(why, APRT_ERR_USAGE, "%s: the model has only %u inputs", text, p->ninputs);
}

static int read_options(request *r, int argc, char **argv, int *out_help, aprt_failure *why)
{
    static const struct option options[] = {{"input", required_argument, NULL, 'i'},
                                            {"output-dir", required_argument, NULL, 'o'},
                                            {"repeat", required_argument, NULL, 'r'},
                                            {"weights", required_argument, NULL, 'w'},
                                            {"profile", no_argument, NULL, 'p'},
                                            {"trace", required_argument, NULL, 't'},
                                            {"help", no_argument, NULL, 'h'},
                                            {"ranks", no_argument, NULL, 'n'},
                                            {NULL, 0, NULL, 0}};
    int c, status = APRT_OK;
    optind = 1;
    opterr = 0;
    while (status == APRT_OK && (c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        char *end;
        if (c == 'i')
            status = add_input(r, optarg, why);
        else if (c == 'o')
            r->output_dir = optarg;
        else if (c == 'w')
            r->weights = optarg;
        else if (c == 'p')
            r->profile = true;
        else if (c == 't')
            r->trace = optarg;
        else if (c == 'h' || c == 'n')
            *out_help = c;
        else if (c == 'r') {
            r->repeat = strtoll(optarg, &end, 10);
            if (*end || end == optarg || r->repeat < 1 || r->repeat > 1000000)
                status =
                    aprt_fail(why, APRT_ERR_USAGE, "--repeat wants a number from 1 to 1000000, not \"%.100s\"", optarg);
        } else
            status = aprt_fail(why, APRT_ERR_USAGE, "\"%.100s\" is no option or lacks its value (see --help)",
                               argv[optind - 1]);
    }
    for (; status == APRT_OK && optind < argc; optind++)
        status = add_input(r, argv[optind], why);
    return status;
}

static int read_inputs(request *r, aprt_failure *why)
{
    const aprt_program *p = r->program;
    for (uint32_t i = 0; i < p->ninputs; i++) {
        const aprt_port *want = &p->input[i];
        if (!r->file[i])
            return aprt_fail(why, APRT_ERR_USAGE, "input \"%.100s\" is missing (see --help)", want->name);
        aprt_tensor *t = &r->input[i];
        int status = aprt_tensor_read(r->file[i], t, why);
        if (status != APRT_OK)
            return status;
        if (t->dtype != want->dtype || t->rank != want->rank ||
            memcmp(t->dim, want->dim, (size_t)t->rank * sizeof *t->dim) != 0) {
            char is[128], should[128];
            aprt_shape_text(t->dtype, t->rank, t->dim, is, sizeof is);
            aprt_shape_text(want->dtype, want->rank, want->dim, should, sizeof should);
            return aprt_fail(why, APRT_ERR_DATA, "%.200s is %s, input \"%.100s\" is %s", r->file[i], is, want->name,
                             should);
        }
        r->in[i] = t->data;
    }
    for (uint32_t i = 0; i < p->noutputs; i++) {
        const aprt_port *o = &p->output[i];
        int status = aprt_tensor_make(o->dtype, o->rank, o->dim, &r->output[i], why);
        if (status != APRT_OK)
            return status;
        r->out[i] = r->output[i].data;
    }
    return APRT_OK;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- output ---- */

static double element(const aprt_tensor *t, int64_t i)
{
    const void *at = (const char *)t->data + i * aprt_dtype_bytes(t->dtype);
    switch (t->dtype) {
    case APRT_F32:
        return *(const float *)at;
    case APRT_F64:
        return *(const double *)at;
    case APRT_F16:
        return aprt_f16_to_f32(*(const uint16_t *)at);
    case APRT_BF16:
        return aprt_bf16_to_f32(*(const uint16_t *)at);
    case APRT_I8:
        return *(const int8_t *)at;
    case APRT_I16:
        return *(const int16_t *)at;
    case APRT_U16:
        return *(const uint16_t *)at;
    case APRT_I32:
        return *(const int32_t *)at;
    case APRT_U32:
        return *(const uint32_t *)at;
    case APRT_I64:
        return (double)*(const int64_t *)at;
    case APRT_U64:
        return (double)*(const uint64_t *)at;
    default:
        return *(const uint8_t *)at;
    }
}

static void print_summary(const char *name, const aprt_tensor *t)
{
    char shape[128];
    int64_t count = t->bytes / aprt_dtype_bytes(t->dtype), nan = 0;
    double low = INFINITY, high = -INFINITY, sum = 0;
    for (int64_t i = 0; i < count; i++) {
        double x = element(t, i);
        nan += x != x;
        low = x < low ? x : low;
        high = x > high ? x : high;
        sum += x;
    }
    aprt_shape_text(t->dtype, t->rank, t->dim, shape, sizeof shape);
    printf("%s %s", name, shape);
    if (count > nan)
        printf(" min %.6g max %.6g mean %.6g", low, high, sum / (double)count);
    if (nan)
        printf(" (%lld NaN)", (long long)nan);
    printf("\n");
}

/* A name that begins with a dot, is empty or clashes gets its number in front. */
static void clean_name(const char *name, char *out, size_t size)
{
    size_t n = 0;
    for (const char *s = name; *s && n < size - 1; s++)
        out[n++] = strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_", *s) ? *s : '_';
    out[n] = 0;
}

void aprt_output_file(const aprt_port *output, uint32_t noutputs, uint32_t i, char *out, size_t size)
{
    char clean[160], other[160];
    bool clash = false;
    clean_name(output[i].name, clean, sizeof clean);
    for (uint32_t j = 0; j < noutputs; j++) {
        clean_name(output[j].name, other, sizeof other);
        clash = clash || (j != i && strcmp(clean, other) == 0);
    }
    if (clash || clean[0] == 0 || clean[0] == '.')
        snprintf(out, size, "%u_%s.npy", i, clean);
    else
        snprintf(out, size, "%s.npy", clean);
}

static int write_outputs(const request *r, aprt_failure *why)
{
    const aprt_program *p = r->program;
    if (!r->output_dir)
        return APRT_OK;
    if (mkdir(r->output_dir, 0777) != 0 && errno != EEXIST)
        return aprt_fail(why, APRT_ERR_ENV, "%.200s: %s", r->output_dir, strerror(errno));
    for (uint32_t i = 0; i < p->noutputs; i++) {
        char name[200], path[4096];
        aprt_output_file(p->output, p->noutputs, i, name, sizeof name);
        if ((size_t)snprintf(path, sizeof path, "%s/%s", r->output_dir, name) >= sizeof path)
            return aprt_fail(why, APRT_ERR_ENV, "the path %.200s... is too long", r->output_dir);
        int status = aprt_npy_write(path, &p->output[i], r->output[i].data, why);
        if (status != APRT_OK)
            return status;
    }
    return APRT_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct profile_row {
    const char *what;
    double seconds, predicted;
    uint32_t calls;
} profile_row;

static int by_seconds(const void *a, const void *b)
{
    double x = ((const profile_row *)a)->seconds, y = ((const profile_row *)b)->seconds;
    return (x < y) - (x > y);
}

/* Of the first rank of a stage. */
static void print_stage_profile(const request *r, const aprt_stage *s, const double *seconds)
{
    profile_row *row = calloc(s->ninstrs + 1u, sizeof *row);
    const double runs = (double)r->repeat, microbatches = (double)r->program->microbatches;
    char title[64];
    uint32_t n = 0;
    double total = 0;
    for (uint32_t i = 0; row && i < s->ninstrs; i++) {
        uint32_t k = 0;
        while (k < n && strcmp(row[k].what, s->instr[i].what) != 0)
            k++;
        n += k == n;
        row[k].what = s->instr[i].what;
        row[k].seconds += seconds[i] / runs;
        row[k].predicted += 1e-12 * (double)s->instr[i].picoseconds * microbatches;
        row[k].calls++;
        total += seconds[i] / runs;
    }
    if (row)
        qsort(row, n, sizeof *row, by_seconds);
    snprintf(title, sizeof title, "device %d, one run", s->first_rank);
    printf("%-40s %6s %10s %7s %12s\n", title, "calls", "ms", "%", "predicted ms");
    for (uint32_t k = 0; k < n; k++)
        printf("%-40s %6lld %10.3f %7.2f %12.3f\n", row[k].what, (long long)row[k].calls * r->program->microbatches,
               1e3 * row[k].seconds, total > 0 ? 100 * row[k].seconds / total : 0, 1e3 * row[k].predicted);
    free(row);
}

static int print_profile(const request *r, aprt_instance *in, aprt_failure *why)
{
    double *seconds;
    int status = aprt_profile_gather(in, &seconds, why);
    const double *at = seconds;
    for (uint32_t s = 0; at && s < r->program->nstages; s++) {
        print_stage_profile(r, &r->program->stage[s], at);
        at += r->program->stage[s].ninstrs;
    }
    free(seconds);
    return status;
}

/* ---- all of it ---- */

static int run_all(request *r, aprt_failure *why)
{
    const aprt_program *p = r->program;
    aprt_options options = r->given ? *r->given : (aprt_options){0};
    options.weights = r->weights ? r->weights : options.weights;
    aprt_instance *in;
    int status = aprt_open(p, &options, &in);
    if (status == APRT_OK && r->profile)
        status = aprt_profile_enable(in);
    if (status == APRT_OK && r->trace)
        status = aprt_trace_enable(in);
    for (int64_t i = 0; i < r->repeat && status == APRT_OK; i++) {
        double start = now();
        status = aprt_run(in, r->in, r->out);
        r->seconds[i] = now() - start;
    }
    if (status != APRT_OK)
        aprt_fail(why, status, "%s", aprt_error(in));
    else if (r->profile)
        status = print_profile(r, in, why);
    if (status == APRT_OK && r->trace)
        status = aprt_trace_write(in, r->trace, why);
    if (status == APRT_OK)
        status = aprt_trace_finish(in, why);
    aprt_close(in);
    if (status != APRT_OK || r->quiet)
        return status;
    for (uint32_t i = 0; i < p->noutputs; i++)
        print_summary(p->output[i].name, &r->output[i]);
    if (r->repeat > 1) {
        qsort(r->seconds, (size_t)r->repeat, sizeof *r->seconds, by_value);
        printf("time: median %.3f ms, best %.3f ms of %lld runs\n", 1e3 * r->seconds[r->repeat / 2],
               1e3 * r->seconds[0], (long long)r->repeat);
    }
    return write_outputs(r, why);
}

static void release(request *r)
{
    for (uint32_t i = 0; r->input && i < r->program->ninputs; i++)
        aprt_tensor_free(&r->input[i]);
    for (uint32_t i = 0; r->output && i < r->program->noutputs; i++)
        aprt_tensor_free(&r->output[i]);
    free(r->file);
    free(r->input);
    free(r->output);
    free(r->in);
    free(r->out);
    free(r->seconds);
}

/* A standard stream that was closed must not be the number of a file that is opened, nor swallow what is printed; a
 * file that may grow no further is an error of write like a full disk. */
static void hold_standard_streams(void)
{
    signal(SIGXFSZ, SIG_IGN);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY) < 0)
            return;
}

int aprt_main(int argc, char **argv, const aprt_program *p)
{
    return aprt_main_with(argc, argv, p, NULL);
}

int aprt_main_with(int argc, char **argv, const aprt_program *p, const aprt_options *options)
{
    hold_standard_streams();
    aprt_failure why = {""};
    request r = {.program = p, .given = options, .repeat = 1};
    int32_t rank;
    int help = 0, status = APRT_OK;
    r.file = calloc(p->ninputs + 1u, sizeof *r.file);
    r.input = calloc(p->ninputs + 1u, sizeof *r.input);
    r.output = calloc(p->noutputs + 1u, sizeof *r.output);
    r.in = calloc(p->ninputs + 1u, sizeof *r.in);
    r.out = calloc(p->noutputs + 1u, sizeof *r.out);
    if (!r.file || !r.input || !r.output || !r.in || !r.out)
        status = aprt_fail(&why, APRT_ERR_ENV, "out of memory");
    if (status == APRT_OK)
        status = read_options(&r, argc, argv, &help, &why);
    r.quiet = aprt_comm_launched(&rank) > 0 && rank > 0;
    if (status == APRT_OK && help == 'n')
        printf("%d\n", p->nranks);
    else if (status == APRT_OK && help && !r.quiet)
        print_help(argv[0], p);
    if (status == APRT_OK && !help) {
        r.seconds = calloc((size_t)r.repeat, sizeof *r.seconds);
        status = r.seconds ? read_inputs(&r, &why) : aprt_fail(&why, APRT_ERR_ENV, "out of memory");
        if (status == APRT_OK)
            status = run_all(&r, &why);
    }
    bool lost = fflush(stdout) != 0 || ferror(stdout);
    if (lost && status == APRT_OK)
        status = aprt_fail(&why, APRT_ERR_ENV, "cannot write to standard output");
    release(&r);
    if (status == APRT_OK)
        return 0;
    if (r.quiet) /* what is wrong for all, the first process tells; its end ends this one */
        nanosleep(&(struct timespec){1, 0}, NULL);
    return aprt_comm_report(status, why.text) ? status : complain(p->name, status, why.text);
}

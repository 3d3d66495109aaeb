/* SPDX-License-Identifier: MIT
 *
 *     autopar_profile_cuda [--devices N] [--quick] [--limit N]
 *
 * Measures N GPUs (default: all that there are), which work at the same time, and prints one JSON object:
 *
 *     {"version": 1, "gpu": NAME, "devices": N, "memory": BYTES, "cases": [
 *      {"kind": KIND, "type": TYPE, "name": TEXT, "what": TEXT, "each": N, ..., "seconds": S}, ...]}
 *
 * memory is what a program finds free on the GPU that has the least; what the numbers of a case count is said in
 * profile.h, of whose fields they have the names; the type "tf32" is f32 computed in TF32. --limit leaves out cases of
 * more FLOPs or bytes. Exit code 4: there is no GPU, or something failed on it. */
#include "profile.h"

#include <cuda_runtime_api.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_DEVICES = 64 };

static int complain(int status, const char *text)
{
    fprintf(stderr, "autopar_profile_cuda: %s\n", text);
    return status;
}

static bool read_number(const char *text, int64_t least, int64_t most, int64_t *out)
{
    char *end;
    const long long v = strtoll(text, &end, 10);
    *out = v;
    return end != text && !*end && v >= least && v <= most;
}

static int read_options(int argc, char **argv, profile_options *out)
{
    static const struct option options[] = {{"devices", required_argument, NULL, 'd'},
                                            {"quick", no_argument, NULL, 'q'},
                                            {"limit", required_argument, NULL, 'l'},
                                            {NULL, 0, NULL, 0}};
    int64_t devices = 0;
    int c;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        bool good = c == 'q';
        out->quick = out->quick || c == 'q';
        if (c == 'd')
            good = read_number(optarg, 1, MOST_DEVICES, &devices);
        if (c == 'l')
            good = read_number(optarg, 1, INT64_MAX, &out->limit);
        if (!good)
            return complain(APRT_ERR_USAGE, "usage: autopar_profile_cuda [--devices N] [--quick] [--limit N]");
    }
    out->devices = (int32_t)devices;
    return optind == argc ? APRT_OK : complain(APRT_ERR_USAGE, "no file is read");
}

/* The GPUs that there are: their number if none was asked for, the name of the first, the least free memory. */
static int find_gpus(profile_options *io, char *name, size_t size, int64_t *memory)
{
    char text[256];
    struct cudaDeviceProp is;
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0) {
        snprintf(text, sizeof text, "there is no GPU, or no driver for it: %s",
                 error == cudaSuccess ? "none was found" : cudaGetErrorString(error));
        return complain(APRT_ERR_ENV, text);
    }
    if (io->devices == 0)
        io->devices = count < MOST_DEVICES ? count : MOST_DEVICES;
    if (io->devices > count) {
        snprintf(text, sizeof text, "--devices %d: there are %d GPUs", (int)io->devices, count);
        return complain(APRT_ERR_ENV, text);
    }
    *memory = INT64_MAX;
    for (int i = 0; i < io->devices && error == cudaSuccess; i++) {
        size_t have = 0, all = 0;
        error = cudaSetDevice(i);
        error = error == cudaSuccess ? cudaMemGetInfo(&have, &all) : error;
        *memory = (int64_t)have < *memory ? (int64_t)have : *memory;
    }
    error = error == cudaSuccess ? cudaGetDeviceProperties(&is, 0) : error;
    if (error != cudaSuccess)
        return complain(APRT_ERR_ENV, cudaGetErrorString(error));
    snprintf(name, size, "%s", is.name);
    return APRT_OK;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of all ranks the lower quartile: of an exchange the rank that comes last says what it takes without waiting. */
static double of_ranks(const double *seconds, int32_t nranks, uint32_t ncases, uint32_t i)
{
    double one[MOST_DEVICES];
    for (int32_t r = 0; r < nranks; r++)
        one[r] = seconds[(size_t)r * ncases + i];
    qsort(one, (size_t)nranks, sizeof *one, compare);
    return one[(nranks - 1) / 4];
}

static void print_number(const char *name, int64_t value)
{
    printf("\"%s\": %" PRId64 ", ", name, value);
}

static void print_cases(const profile_options *opt, const profile_cases *c, const double *seconds)
{
    for (uint32_t i = 0; i < c->n; i++) {
        const profile_case *k = &c->at[i];
        printf("%s\n {\"kind\": \"%s\", \"type\": \"%s\", \"name\": \"%s\", \"what\": \"%s\", ",
               i || opt->tf32 ? "," : "", profile_kind_name(k->kind), opt->tf32 ? "tf32" : aprt_dtype_name(k->dtype),
               k->name, k->what);
        print_number("each", k->each);
        print_number("flops", k->flops);
        print_number("columns", k->columns);
        print_number("depth", k->depth);
        print_number("simple", k->simple);
        print_number("functions", k->functions);
        print_number("row", k->row);
        print_number("bytes", k->bytes);
        print_number("steps", k->steps);
        printf("\"seconds\": %.9e}", of_ranks(seconds, opt->devices, c->n, i));
    }
}

static int run_program(const aprt_program *p, double *seconds)
{
    aprt_instance *in;
    int status = aprt_open(p, NULL, &in);
    if (status == APRT_OK)
        status = aprt_run(in, NULL, (void *[]){seconds});
    if (status != APRT_OK)
        complain(status, aprt_error(in));
    aprt_close(in);
    return status;
}

static int list(aprt_device *d)
{
    return aprt_stage_run(d, 0);
}

static int measure(const profile_options *opt, const profile_cases *c)
{
    static const int32_t numbers[] = {0};
    const int32_t n = opt->devices;
    const aprt_port port = {"seconds", APRT_F64, 2, {n, c->n}};
    const aprt_written written = {.ndims = 1, .extent = {c->n}, .stride = {1}, .offset = {0, {c->n}}};
    const aprt_instr instr = {"measuring", "", "", 0};
    const profile_stage s = {.stage = {.name = "profile",
                                       .nranks = n,
                                       .naxes = 1,
                                       .axis_size = {n},
                                       .axis_stride = {1},
                                       .arena_bytes = c->arena_bytes,
                                       .noutputs = 1,
                                       .output = numbers,
                                       .ngroups = c->ngroups,
                                       .group = c->group,
                                       .ninstrs = 1,
                                       .instr = &instr,
                                       .run = profile_run,
                                       .list = list,
                                       .nslots = c->nslots + 1,
                                       .prepare = profile_prepare,
                                       .release = aprt_cuda_conv_release,
                                       .nwritten = 1,
                                       .written = &written,
                                       .target = &aprt_target_cuda,
                                       .workspace_bytes = APRT_CUDA_WORKSPACE,
                                       .nexchanges = c->nexchanges,
                                       .exchange = c->exchange},
                             .cases = c,
                             .turns = opt->quick ? 2 : 5,
                             .most_calls = opt->quick ? 8 : 50};
    const aprt_program p = {.abi = APRT_ABI,
                            .name = "autopar_profile_cuda",
                            .nranks = n,
                            .microbatches = 1,
                            .noutputs = 1,
                            .output = &port,
                            .nstages = 1,
                            .stage = &s.stage};
    double *seconds = calloc((size_t)n * c->n + 1, sizeof *seconds);
    if (!seconds)
        return complain(APRT_ERR_ENV, "out of memory");
    const int status = run_program(&p, seconds);
    if (status == APRT_OK)
        print_cases(opt, c, seconds);
    free(seconds);
    return status;
}

int main(int argc, char **argv)
{
    profile_options opt = {0};
    char name[256];
    int64_t memory = 0;
    int status = read_options(argc, argv, &opt);
    if (status == APRT_OK)
        status = find_gpus(&opt, name, sizeof name, &memory);
    if (status != APRT_OK)
        return status;
    printf("{\"version\": 1, \"gpu\": \"%s\", \"devices\": %d, \"memory\": %" PRId64 ", \"cases\": [", name,
           (int)opt.devices, memory);
    for (int pass = 0; pass < 2 && status == APRT_OK; pass++) {
        profile_cases cases;
        opt.tf32 = pass == 1;
        setenv("AUTOPAR_TF32", opt.tf32 ? "1" : "0", 1);
        status = profile_cases_make(&opt, &cases) ? measure(&opt, &cases) : complain(APRT_ERR_ENV, "out of memory");
        profile_cases_free(&cases);
    }
    if (status == APRT_OK)
        printf("]}\n");
    return status;
}

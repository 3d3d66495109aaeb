/* Memory that runs out during a compile. The driver is linked in (its main is called driver_main), and allocation
 * number 1, 2, 3, ... fails until a run meets no failure. Each run ends with success or with exit code 4 and the
 * message "out of memory", without a crash, a leak or a half-made folder.
 *
 * Under AddressSanitizer allocations of the program are counted (--wrap), and leaks are looked for after each run;
 * else those of the libraries too (GLPK). Arenas give every allocation a block of its own (AP_ARENA_EXACT). */
#include "tests/frontend/make_model.h"

#include "tests/solve/random_problem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glpk.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <zlib.h>

int driver_main(int argc, char **argv);

/* Shared with the children: they count. */
static struct counters {
    volatile int64_t until, failed; /* allocations that still succeed (negative: all); how many have failed */
} * counters;

static int fails(void)
{
    if (!counters || counters->until < 0)
        return 0;
    if (counters->until-- > 0)
        return 0;
    counters->failed++;
    errno = ENOMEM;
    return 1; /* `until` is negative from here on: only this one fails */
}

#ifdef AP_WRAP
#define CALLED(name) __wrap_##name
#define REAL(name) __real_##name
void __lsan_do_leak_check(void);
int __lsan_do_recoverable_leak_check(void);
#else
#define CALLED(name) name
#define REAL(name) __libc_##name
#endif
void *CALLED(malloc)(size_t size);
void *CALLED(calloc)(size_t n, size_t size);
void *CALLED(realloc)(void *p, size_t size);
void *REAL(malloc)(size_t size);
void *REAL(calloc)(size_t n, size_t size);
void *REAL(realloc)(void *p, size_t size);

void *CALLED(malloc)(size_t size)
{
    return fails() ? NULL : REAL(malloc)(size);
}

void *CALLED(calloc)(size_t n, size_t size)
{
    return fails() ? NULL : REAL(calloc)(n, size);
}

void *CALLED(realloc)(void *p, size_t size)
{
    return fails() ? NULL : REAL(realloc)(p, size);
}

/* ---- one run ---- */

/* Out of memory in our words, or in those of the C library. */
static bool is_out_of_memory(const char *text)
{
    /* a thread needs memory too, and the system then says that it has no resources for one */
    return strstr(text, "out of memory") || strstr(text, "Cannot allocate memory") ||
           strstr(text, "cannot start a thread");
}

typedef struct setup {
    char folder[64];
    int (*body)(const struct setup *s); /* what is run instead of the driver, or NULL */
    const char **argv;
    int argc;
} setup;

static void child(const setup *s, int64_t until)
{
    char path[128];
    snprintf(path, sizeof path, "%s/messages", s->folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600), null = open("/dev/null", O_WRONLY);
    dup2(null, 1);
    dup2(fd, 2);
    setvbuf(stderr, NULL, _IONBF, 0);
    close(fd);
    close(null);
    counters->until = until;
    int code = s->body ? s->body(s) : driver_main(s->argc, (char **)(uintptr_t)s->argv);
    counters->until = -1;
    fflush(stdout);
#ifdef AP_WRAP
    if (__lsan_do_recoverable_leak_check())
        code = 99;
#endif
    _exit(code);
}

static int run(const setup *s, int64_t until)
{
    int status;
    counters->failed = 0;
    counters->until = -1;
    pid_t pid = fork();
    if (pid == 0)
        child(s, until);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    counters->until = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void read_messages(const setup *s, char *out, size_t size)
{
    char path[128];
    snprintf(path, sizeof path, "%s/messages", s->folder);
    int fd = open(path, O_RDONLY);
    ssize_t n = fd < 0 ? 0 : read(fd, out, size - 1);
    out[n > 0 ? n : 0] = 0;
    close(fd);
}

/* Besides the model and the messages, only a whole result may be there. */
static int leftovers(const setup *s, int code)
{
    int bad = 0;
    DIR *d = opendir(s->folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        bool known = e->d_name[0] == '.' || !strcmp(e->d_name, "model.onnx") || !strcmp(e->d_name, "messages");
        if (!known && (code != 0 || (strcmp(e->d_name, "out") && strcmp(e->d_name, "plan.json")))) {
            fprintf(stderr, "left over: %s\n", e->d_name);
            bad++;
        }
    }
    closedir(d);
    return bad;
}

static void remove_result(ap_ctx *ctx, const setup *s)
{
    char path[128];
    snprintf(path, sizeof path, "%s/out", s->folder);
    assert_int_equal(ap_dir_remove(ctx, path), AP_OK);
    snprintf(path, sizeof path, "%s/plan.json", s->folder);
    unlink(path);
}

/* Every allocation when there are at most `most`, else that many spread evenly. */
static void fail_each(ap_ctx *ctx, const setup *s, int64_t most)
{
    const int64_t many = INT64_C(1) << 40;
    char text[4096];
    int code = run(s, many);
    read_messages(s, text, sizeof text);
    if (code != 0)
        fprintf(stderr, "%d: %s\n", code, text);
    assert_int_equal(code, 0);
    remove_result(ctx, s);

    int64_t total = 0, tried = 0, bad = 0, step = 1;
    for (int64_t hi = 1; total == 0; hi *= 2) { /* how many there are: the first power of two without a failure */
        run(s, hi);
        remove_result(ctx, s);
        if (counters->failed == 0)
            total = hi;
    }
    step = total / most + 1;
    for (int64_t n = 0; n < total && bad < 5; n += n < 64 ? 1 : step) {
        code = run(s, n);
        int64_t failed = counters->failed;
        read_messages(s, text, sizeof text);
        bool good = code == 0 || (code == 4 && is_out_of_memory(text));
        if (!good || leftovers(s, code)) {
            fprintf(stderr, "allocation %lld of at most %lld: exit code %d: %s\n", (long long)n, (long long)total, code,
                    text);
            bad++;
        }
        remove_result(ctx, s);
        tried++;
        if (failed == 0)
            break;
    }
    fprintf(stderr, "%lld allocations failed, one a run (of at most %lld)\n", (long long)tried, (long long)total);
    assert_int_equal(bad, 0);
    assert_true(tried > 100);
}

static void make_small(maker *k)
{
    float w[64];
    for (int i = 0; i < 64; i++)
        w[i] = (float)(i % 7) / 8;
    make_init(k, 17);
    make_input(k, "x", 1, "4,8");
    make_f32(k, "w1", "8,8", 64, w);
    make_f32(k, "b1", "8", 8, w);
    make_f32(k, "w2", "8,4", 32, w);
    make_node(k, "MatMul", "fc1", "x,w1", "h");
    make_node(k, "Add", "bias", "h,b1", "a");
    make_node(k, "Softmax", "act", "a", "s");
    make_node(k, "MatMul", "fc2", "s,w2", "y");
    make_output(k, "y");
    make_save(k);
}

/* For `solve`, in place of the model. */
static void write_problem(const char *path)
{
    static const char text[] =
        "{\"problem\": {\"edges\": {\"costs\": [[0, 1, 2, 0]], \"nodes\": [[0, 1]]}, \"nodes\": "
        "{\"costs\": [[1, 2], [2, 1]], \"usages\": [[1, 2], [3, 1]], \"intervals\": [[0, 2], [1, 5]]}, "
        "\"pair_demands\": {\"edges\": [0], \"intervals\": [[1, 2]], \"usages\": [[0, 1, 1, 3]]}, "
        "\"usage_limit\": 4}}";
    gzFile f = gzopen(path, "wb");
    assert_true(f && gzwrite(f, text, sizeof text - 1) == (int)sizeof text - 1 && gzclose(f) == Z_OK);
}

static void each_allocation(const char **argv, int argc, int64_t most)
{
    maker k;
    setup s = {.argv = argv, .argc = argc};
    char model[128], out[128];
    make_small(&k);
    snprintf(s.folder, sizeof s.folder, "%s", k.folder);
    snprintf(model, sizeof model, "%s/model.onnx", k.folder);
    snprintf(out, sizeof out, "%s/%s", k.folder, strcmp(argv[1], "plan") == 0 ? "plan.json" : "out");
    if (strcmp(argv[1], "solve") == 0)
        write_problem(model);
    argv[2] = model;
    argv[4] = out;
    fail_each(k.ctx, &s, most);
    char messages[128];
    snprintf(messages, sizeof messages, "%s/messages", k.folder);
    unlink(messages);
    make_deinit(&k);
}

/* AUTOPAR_MEMORY_RUNS: that many; enough of them are all allocations. */
static int64_t runs(void)
{
    const char *s = getenv("AUTOPAR_MEMORY_RUNS");
    return s ? atoll(s) : 120;
}

static void compile_one_device(void **state)
{
    (void)state;
    const char *argv[] = {"autopar", "compile", NULL, "-o", NULL, "--emit-only", "-q", NULL};
    each_allocation(argv, 7, runs());
}

static void compile_two_devices(void **state)
{
    (void)state;
    const char *argv[] = {"autopar", "compile",   NULL, "-o",      NULL,    "--emit-only",
                          "-q",      "--devices", "2",  "--split", "force", NULL};
    each_allocation(argv, 11, runs());
}

/* With a search on threads, each of which has a context of its own. */
static void compile_two_stages(void **state)
{
    (void)state;
    const char *argv[] = {"autopar",   "compile", NULL,       "-o", NULL,        "--emit-only", "-q",
                          "--devices", "2",       "--stages", "2",  "--threads", "2",           NULL};
    each_allocation(argv, 13, runs());
}

static void plan_json(void **state)
{
    (void)state;
    const char *argv[] = {"autopar", "plan", NULL, "-o", NULL, "--json", "--devices", "4", NULL};
    each_allocation(argv, 8, runs());
}

static void solve_file(void **state)
{
    (void)state;
    const char *argv[] = {"autopar", "solve", NULL, "-o", NULL, "--json", "--threads", "2", NULL};
    each_allocation(argv, 8, runs());
}

/* ---- the solver, which has a library of its own below it ---- */

static int solve(ap_ctx *ctx)
{
    jmp_buf out_of_memory;
    if (setjmp(*ap_ctx_guard(ctx, &out_of_memory)) != 0) {
        fputs("out of memory\n", stderr);
        return AP_ERR_ENV;
    }
    ap_solve_options opt;
    ap_solve_defaults(&opt);
    opt.presolve = opt.eliminate = false; /* what is left to GLPK alone */
    rng r = {7};
    const shape s = {.max_nodes = 6, .max_strategies = 3, .max_product = 1 << 10, .cost_unit = 1000, .hard = true};
    for (int i = 0; i < 3; i++) {
        ap_problem p;
        ap_solution solution;
        random_problem(&r, &ctx->arena, &s, &p);
        ap_status status = ap_solve(ctx, &ctx->arena, &p, &opt, &solution);
        if (status != AP_OK)
            return (int)status;
        if (solution.result == AP_SOLVED && !ap_problem_evaluate(&p, solution.choice, NULL, NULL))
            return AP_ERR_BUG;
    }
    return 0;
}

static int solver_body(const setup *s)
{
    (void)s;
    ap_ctx *ctx = ap_ctx_create();
    if (!ctx)
        fputs("out of memory\n", stderr);
    int code = ctx ? solve(ctx) : AP_ERR_ENV;
    ap_ctx_release(ctx);
    glp_free_env();
    return code;
}

static void solver(void **state)
{
    (void)state;
    maker k;
    setup s = {.body = solver_body};
    make_small(&k);
    snprintf(s.folder, sizeof s.folder, "%s", k.folder);
    fail_each(k.ctx, &s, runs());
    char messages[128];
    snprintf(messages, sizeof messages, "%s/messages", k.folder);
    unlink(messages);
    make_deinit(&k);
}

int main(void)
{
    counters = mmap(NULL, sizeof *counters, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    counters->until = -1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compile_one_device), cmocka_unit_test(compile_two_devices),
        cmocka_unit_test(compile_two_stages), cmocka_unit_test(plan_json),
        cmocka_unit_test(solve_file),         cmocka_unit_test(solver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

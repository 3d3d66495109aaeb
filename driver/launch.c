/* See the header. An MPI job is started by mpirun, in a process group of its own. A rank that fails says why, leaves
 * its exit code in a file whose name it finds in its environment, and ends the job; we see to it that mpirun ends too,
 * which it does not where a link is cut. What ends us ends the job. */
#define _GNU_SOURCE /* pipe2 */
#include "driver/launch.h"

#include "driver/mpirun_text.h"
#include "driver/process.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { GRACE_TICKS = 20, TICK_NANOSECONDS = 100000000 };

typedef AP_VEC(const char *) arguments;

static bool is_mpi(const ap_options *opt)
{
    return opt->launcher && strcmp(opt->launcher, "mpi") == 0;
}

/* mpirun would say something else about a file without hosts. */
static ap_status check_hosts(ap_ctx *ctx, const char *path)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return ap_fail(ctx, AP_ERR_ENV, 0, "%s: %s", path, strerror(errno));
    bool any = false, comment = false;
    for (int c; !any && (c = getc(f)) != EOF;) {
        comment = c != '\n' && (comment || c == '#');
        any = !comment && !isspace(c);
    }
    const bool failed = ferror(f);
    fclose(f);
    if (failed)
        return ap_fail(ctx, AP_ERR_ENV, 0, "%s: cannot be read", path);
    return any ? AP_OK : ap_fail(ctx, AP_ERR_USAGE, 0, "%s: there is no host in it (lines are: HOST slots=N)", path);
}

ap_status ap_launch_check(ap_ctx *ctx, const ap_options *opt)
{
    if (opt->launcher && !is_mpi(opt) && strcmp(opt->launcher, "local") != 0)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "--launcher is local or mpi, not '%s'", opt->launcher);
    if (opt->hosts && !is_mpi(opt))
        return ap_fail(ctx, AP_ERR_USAGE, 0, "--hosts is for --launcher mpi");
    return opt->hosts ? check_hosts(ctx, opt->hosts) : AP_OK;
}

/* ---- the command line of mpirun ---- */

static void add(ap_ctx *ctx, arguments *a, const char *text)
{
    ap_vec_push(&ctx->arena, a, text);
}

/* An absolute path, because ap_process_run and execv look nowhere. */
static const char *find_mpirun(ap_ctx *ctx)
{
    const char *path = getenv("PATH");
    for (const char *s = path ? path : ""; *s;) {
        const size_t n = strcspn(s, ":");
        const char *file = ap_name_str(ctx, ap_name_format(ctx, "%.*s/mpirun", (int)n, s));
        if (n && access(file, X_OK) == 0)
            return file;
        s += n;
        s += *s == ':';
    }
    return NULL;
}

/* Variables that ranks on other hosts must see as well. */
static void add_environment(ap_ctx *ctx, arguments *a)
{
    static const char *const names[] = {"AUTOPAR_WATCHDOG", "AUTOPAR_TRACE", "AUTOPAR_RT_PLUGIN", "AUTOPAR_JOB_FAILED"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i])) {
            add(ctx, a, "-x");
            add(ctx, a, names[i]);
        }
}

/* mpirun's own links notice a cut as soon as we do: 5 seconds of silence, then a question each second. */
static void add_parameter(ap_ctx *ctx, arguments *a, const char *name, const char *value)
{
    add(ctx, a, "--mca");
    add(ctx, a, name);
    add(ctx, a, value);
}

static ap_status make_command(ap_ctx *ctx, const ap_options *opt, const char *const *argv, int ranks, arguments *a)
{
    const char *mpirun = find_mpirun(ctx);
    if (!mpirun)
        return ap_fail(ctx, AP_ERR_ENV, 0, "--launcher mpi: there is no mpirun in PATH (Debian: openmpi-bin)");
    add(ctx, a, mpirun);
    add(ctx, a, "--oversubscribe");
    if (geteuid() == 0)
        add(ctx, a, "--allow-run-as-root");
    add_parameter(ctx, a, "oob_tcp_keepalive_time", "5");
    add_parameter(ctx, a, "oob_tcp_keepalive_intvl", "1");
    add_parameter(ctx, a, "oob_tcp_keepalive_probes", "3");
    add_parameter(ctx, a, "orte_abort_print_stack", "0");
    if (opt->hosts) {
        add(ctx, a, "--hostfile");
        add(ctx, a, opt->hosts);
    }
    add_environment(ctx, a);
    add(ctx, a, "-n");
    add(ctx, a, ap_name_str(ctx, ap_name_format(ctx, "%d", ranks)));
    for (; *argv; argv++)
        add(ctx, a, *argv);
    add(ctx, a, NULL);
    return AP_OK;
}

/* The program itself knows how many ranks it has, whatever the plan beside it says. */
static ap_status ask_ranks(ap_ctx *ctx, const char *program, int *out)
{
    int ends[2], status = 0;
    char text[32] = "";
    if (access(program, X_OK) != 0 || pipe(ends) != 0)
        return ap_fail(ctx, AP_ERR_ENV, 0, "%s: cannot be run: %s", program, strerror(errno));
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl(program, program, "--ranks", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    const ssize_t n = pid > 0 ? read(ends[0], text, sizeof text - 1) : 0;
    close(ends[0]);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    char *end = text;
    const long ranks = n > 0 ? strtol(text, &end, 10) : 0;
    if (pid < 0 || status != 0 || ranks < 1 || ranks > 1000000 || (*end && *end != '\n'))
        return ap_fail(ctx, AP_ERR_ENV, 0, "%s does not tell how many ranks it has; compile it anew", program);
    *out = (int)ranks;
    return AP_OK;
}

/* ---- the job ---- */

typedef struct job {
    pid_t pid;
    char dir[64], file[96]; /* where a rank that fails leaves its exit code and why */
    int code;               /* that, or -1 */
    char text[1200];        /* and what it says */
    int wait_status;
    ap_mpirun_text says;
} job;

static void read_report(job *j)
{
    char text[sizeof j->text], *end;
    const int fd = open(j->file, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        n = snprintf(text, sizeof text, "%.*s", (int)sizeof text - 1, j->says.report);
    if (n <= 0)
        return;
    text[n - (text[n - 1] == '\n')] = 0;
    const long code = strtol(text, &end, 10);
    j->code = code > 0 && (code <= 4 || code == AP_ERR_BUG) ? (int)code : AP_ERR_ENV;
    snprintf(j->text, sizeof j->text, "%s", end + (*end == ' '));
}

static bool has_ended(job *j)
{
    return waitpid(j->pid, &j->wait_status, WNOHANG) == j->pid;
}

/* Politely first, so that mpirun ends its ranks; then for certain. */
static void stop(job *j)
{
    const struct timespec tick = {0, TICK_NANOSECONDS};
    kill(-j->pid, SIGTERM);
    kill(-j->pid, SIGCONT);
    for (int i = 0; i < GRACE_TICKS; i++) {
        if (has_ended(j))
            return;
        nanosleep(&tick, NULL);
    }
    kill(-j->pid, SIGKILL);
    while (waitpid(j->pid, &j->wait_status, 0) < 0 && errno == EINTR)
        continue;
}

/* Ranks may outlive mpirun for a second. They have become our children; whoever is left after a while is killed. */
static void end_orphans(void)
{
    const struct timespec tick = {0, TICK_NANOSECONDS};
    for (int i = 0; i < 2 * GRACE_TICKS; i++) {
        pid_t ended = waitpid(-1, NULL, WNOHANG);
        if (ended < 0 && errno == ECHILD)
            return;
        if (ended > 0)
            continue;
        FILE *f = i >= GRACE_TICKS ? fopen("/proc/thread-self/children", "r") : NULL;
        for (int pid; f && fscanf(f, "%d", &pid) == 1;)
            kill(pid, SIGKILL);
        if (f)
            fclose(f);
        nanosleep(&tick, NULL);
    }
}

/* Until it has ended, by itself or by us. Returns the signal that ended us, or 0. */
static int watch(job *j, const sigset_t *taken)
{
    const struct timespec tick = {0, TICK_NANOSECONDS};
    int failed = 0;
    while (!has_ended(j)) {
        const int sig = sigtimedwait(taken, NULL, &tick);
        ap_mpirun_text_read(&j->says);
        if (sig > 0 && sig != SIGCHLD) {
            stop(j);
            return sig;
        }
        if (j->code < 0)
            read_report(j);
        failed += j->code >= 0;
        if (failed > GRACE_TICKS)
            kill(-j->pid, SIGKILL); /* it waits for hosts that cannot answer */
    }
    ap_mpirun_text_read(&j->says);
    read_report(j);
    return 0;
}

static void child(const char *const *argv, bool quiet, int err, pid_t parent, const sigset_t *before)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(AP_ERR_ENV);
    sigprocmask(SIG_SETMASK, before, NULL);
    const int in = open("/dev/null", O_RDONLY), out = quiet ? open("/dev/null", O_WRONLY) : -1;
    if (in >= 0)
        dup2(in, STDIN_FILENO); /* in the background it must not ask the terminal */
    if (out >= 0)
        dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    execv(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

/* A process that removes what we have made when we are gone, however we went: SIGKILL leaves no time. It is ended by
 * the end of the pipe that only we have open for writing. */
static pid_t start_cleaner(const job *j, int ends[2])
{
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    const pid_t pid = fork();
    if (pid != 0)
        return pid;
    char end;
    setpgid(0, 0); /* what ends our group must not end it */
    close(ends[1]);
    while (read(ends[0], &end, 1) < 0 && errno == EINTR)
        continue;
    unlink(j->file);
    rmdir(j->dir);
    _exit(0);
}

static void end_cleaner(pid_t pid, const int ends[2])
{
    if (pid < 0)
        return;
    close(ends[0]);
    close(ends[1]);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
}

static ap_status run_job(ap_ctx *ctx, job *j, const char *const *argv, bool quiet)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD};
    sigset_t taken, before;
    sigemptyset(&taken);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaddset(&taken, signals[i]);
    int err[2], life[2];
    if (pipe2(err, O_CLOEXEC) != 0)
        return ap_fail(ctx, AP_ERR_ENV, 0, "cannot start a process: %s", strerror(errno));
    fflush(NULL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigprocmask(SIG_BLOCK, &taken, &before);
    const pid_t self = getpid(), cleaner = start_cleaner(j, life);
    j->pid = fork();
    if (j->pid == 0)
        child(argv, quiet, err[1], self, &before);
    const int e = errno;
    close(err[1]);
    ap_mpirun_text_open(&j->says, err[0]);
    if (j->pid > 0)
        setpgid(j->pid, j->pid);
    const int sig = j->pid > 0 ? watch(j, &taken) : 0;
    ap_mpirun_text_close(&j->says);
    end_cleaner(cleaner, life);
    end_orphans();
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (j->pid < 0)
        return ap_fail(ctx, AP_ERR_ENV, 0, "cannot start a process: %s", strerror(e));
    if (sig == 0)
        return AP_OK;
    unlink(j->file);
    rmdir(j->dir);
    signal(sig, SIG_DFL);
    raise(sig);
    _exit(128 + sig);
}

/* Codes from 129 on may be 128 + a signal, where there is such a signal. */
static ap_status job_status(ap_ctx *ctx, const ap_options *opt, const job *j)
{
    if (j->code > 0)
        return ap_fail(ctx, (ap_status)j->code, 0, "%s", j->text);
    const bool exited = WIFEXITED(j->wait_status);
    const int code = exited ? WEXITSTATUS(j->wait_status) : 0;
    if (exited && code == 0)
        return AP_OK;
    if (j->says.rank >= 0)
        return ap_fail(ctx, AP_ERR_ENV, 0, "the job failed: rank %d on host %s was ended by signal %d (%s)",
                       j->says.rank, j->says.host, j->says.sig, strsignal(j->says.sig));
    const int sig = exited ? code - 128 : WTERMSIG(j->wait_status);
    if (sig > 0 && sig <= SIGRTMAX)
        return ap_fail(ctx, AP_ERR_ENV, 0, "the job failed: a process of it was ended by signal %d (%s)", sig,
                       strsignal(sig));
    return ap_fail(ctx, AP_ERR_ENV, 0, "the job failed: mpirun ended with code %d%s%s%s", code,
                   opt->hosts ? "; can it reach all hosts of " : "", opt->hosts ? opt->hosts : "",
                   opt->hosts ? "?" : "");
}

/* The plugin of this installation, unless the user has another one in mind. */
static void find_plugin(ap_ctx *ctx)
{
    const char *include, *lib;
    if (getenv("AUTOPAR_RT_PLUGIN") || ap_find_runtime(ctx, &include, &lib) != AP_OK)
        return;
    const char *plugin = ap_name_str(ctx, ap_name_format(ctx, "%s/libautopar_rt_mpi.so", lib));
    if (access(plugin, R_OK) == 0)
        setenv("AUTOPAR_RT_PLUGIN", plugin, 1);
}

static ap_status launch_mpi(ap_ctx *ctx, const ap_options *opt, const char *const *argv, bool quiet)
{
    job j = {.code = -1};
    arguments command = {0};
    int ranks = 0;
    AP_TRY(ask_ranks(ctx, argv[0], &ranks));
    const char *tmp = getenv("TMPDIR");
    if (snprintf(j.dir, sizeof j.dir, "%.40s/autopar-XXXXXX", tmp && *tmp && strlen(tmp) < 40 ? tmp : "/tmp") < 0 ||
        !mkdtemp(j.dir))
        return ap_fail(ctx, AP_ERR_ENV, 0, "%s: cannot make a temporary folder: %s", j.dir, strerror(errno));
    snprintf(j.file, sizeof j.file, "%s/failed", j.dir);
    setenv("AUTOPAR_JOB_FAILED", j.file, 1);
    find_plugin(ctx);
    ap_status s = make_command(ctx, opt, argv, ranks, &command);
    if (s == AP_OK)
        s = run_job(ctx, &j, command.at, quiet);
    unlink(j.file);
    rmdir(j.dir);
    return s == AP_OK ? job_status(ctx, opt, &j) : s;
}

ap_status ap_launch(ap_ctx *ctx, const ap_options *opt, const char *const *argv, bool quiet)
{
    int code;
    if (is_mpi(opt))
        return launch_mpi(ctx, opt, argv, quiet);
    AP_TRY(ap_process_run(ctx, argv, quiet, &code));
    if (code > 4 && code != AP_ERR_BUG)
        return ap_fail(ctx, AP_ERR_ENV, 0, "%s ended with code %d", argv[0], code);
    return (ap_status)code; /* the program has told why */
}

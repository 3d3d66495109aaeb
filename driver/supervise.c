/* See the header. The supervisor keeps its signals blocked and takes them one by one, so it needs no handler and no
 * global: everything happens in ordinary code. */
#include "driver/supervise.h"

#include "ir/base/file.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void wait_a_little(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

static void clean(ap_ctx *ctx, const ap_half_done *h)
{
    struct stat st;
    if (h->old && lstat(h->old, &st) == 0 && lstat(h->dir, &st) != 0)
        rename(h->old, h->dir);
    else if (h->old)
        ap_dir_remove(ctx, h->old);
    /* A process of the group may have been writing when it was killed. Only the last failure is told. */
    uint32_t told = ctx->diags.len;
    for (int i = 0; i < 100 && lstat(h->part, &st) == 0; i++) {
        ctx->diags.len = told;
        if (ap_dir_remove(ctx, h->part) != AP_OK)
            wait_a_little();
    }
}

/* Ends the group: politely, so that compilers remove their own temporary files, then for certain. */
static void stop_group(pid_t pid)
{
    bool reaped = false;
    kill(-pid, SIGTERM);
    kill(-pid, SIGCONT);
    for (int i = 0; i < 100 && !reaped; i++) {
        reaped = waitpid(pid, NULL, WNOHANG) == pid;
        if (!reaped)
            wait_a_little();
    }
    for (int i = 0; i < 20 && kill(-pid, 0) == 0; i++)
        wait_a_little();
    kill(-pid, SIGKILL);
    if (!reaped)
        waitpid(pid, NULL, 0);
}

static void die_by(int sig, const sigset_t *before)
{
    signal(sig, SIG_DFL);
    raise(sig);
    sigprocmask(SIG_SETMASK, before, NULL); /* it arrives here */
    _exit(128 + sig);
}

static ap_status status_of(ap_ctx *ctx, int status)
{
    if (WIFEXITED(status))
        return (ap_status)WEXITSTATUS(status);
    int sig = WTERMSIG(status);
    bool bug = sig == SIGSEGV || sig == SIGBUS || sig == SIGABRT || sig == SIGFPE || sig == SIGILL;
    return ap_fail(ctx, bug ? AP_ERR_BUG : AP_ERR_ENV, 0, "the work was ended by signal %d (%s)%s", sig, strsignal(sig),
                   sig == SIGKILL ? "; was memory out?" : "");
}

static ap_status watch(ap_ctx *ctx, pid_t pid, const ap_half_done *h, const sigset_t *taken, const sigset_t *before)
{
    for (;;) {
        int status, sig = 0;
        pid_t ended = waitpid(pid, &status, WNOHANG);
        if (ended == pid) {
            clean(ctx, h);
            sigprocmask(SIG_SETMASK, before, NULL);
            return status_of(ctx, status);
        }
        if (ended < 0 && errno != EINTR)
            return ap_fail(ctx, AP_ERR_ENV, 0, "waiting for the work: %s", strerror(errno));
        if (sigwait(taken, &sig) != 0 || sig == SIGCHLD)
            continue;
        if (sig == SIGTSTP) {
            kill(-pid, SIGSTOP);
            raise(SIGSTOP); /* returns when somebody continues us */
            kill(-pid, SIGCONT);
            continue;
        }
        stop_group(pid);
        clean(ctx, h);
        die_by(sig, before);
    }
}

static void become_worker(pid_t supervisor, const sigset_t *before)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != supervisor)
        _exit(AP_ERR_ENV); /* it died before we asked to be told */
    sigprocmask(SIG_SETMASK, before, NULL);
}

ap_status ap_supervise(ap_ctx *ctx, const ap_half_done *half_done, bool *out_worker)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCHLD};
    sigset_t taken, before;
    *out_worker = false;
    sigemptyset(&taken);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaddset(&taken, signals[i]);
    signal(SIGCHLD, SIG_DFL); /* inherited as ignored it would reap the worker for us */
    fflush(NULL);
    sigprocmask(SIG_BLOCK, &taken, &before);
    pid_t self = getpid(), pid = fork();
    if (pid == 0) {
        become_worker(self, &before);
        *out_worker = true;
        return AP_OK;
    }
    if (pid > 0) {
        setpgid(pid, pid);
        return watch(ctx, pid, half_done, &taken, &before);
    }
    int e = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    return ap_fail(ctx, AP_ERR_ENV, 0, "cannot start a process: %s", strerror(e));
}

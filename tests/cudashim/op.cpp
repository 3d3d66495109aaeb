/* Ops and their order.
 *
 * An op can run when all that is before it is done: what was on its stream, and what its stream was told to wait for.
 * Which of those that can run goes next is drawn from the seed, in waves of different taste: any; the newest; the
 * oldest; one stream far ahead of all others; and only what the waiting thread cannot do without. So a missing event
 * is not hidden by luck for long, and never for a fixed seed and one host thread. */
#include <algorithm>
#include <cstdlib>
#include <ctime>

#include "shim.h"

namespace shim
{

namespace
{
enum { OPS_KEPT = 1 << 16, BACKLOG = 1 << 14 };

unsigned timeout_seconds()
{
    const char *text = getenv("CUDASHIM_TIMEOUT");
    return text ? (unsigned)strtoul(text, nullptr, 10) : 120;
}

void start(Machine &m, const OpRef &op)
{
    for (const OpRef &b : op->before)
        clock_join(op->clock, b->clock);
    op->before.clear();
    if (op->clock.size() <= op->chain)
        op->clock.resize(op->chain + 1);
    op->clock[op->chain] = op->number;
    op->state = Op::READY;
    if (!op->parts.empty())
        parts_start(op);
    else if (op->work.run)
        task_add(m, Task{op, nullptr, nullptr});
    else
        op_done(m, op);
}

void mark_wanted(Machine &m, const OpRef &op)
{
    std::vector<OpRef> todo{op};
    while (!todo.empty()) {
        OpRef o = todo.back();
        todo.pop_back();
        if (o->wanted == m.wave || o->state == Op::DONE)
            continue;
        o->wanted = m.wave;
        for (const OpRef &b : o->before)
            todo.push_back(b);
    }
}

/* A task's place in `ready`; -1 if this taste wants none. Transfers between ranks always are wanted. */
long choose(Machine &m, unsigned taste, uint64_t wave)
{
    if (m.ready.empty())
        return -1;
    size_t n = m.ready.size(), best = 0;
    switch (taste) {
    case 0:
        return (long)draw(m, n);
    case 1:
        return (long)n - 1;
    case 2:
        return 0;
    case 3:
        for (size_t i = 1; i < n; i++)
            if (mix(m.ready[i].op->chain ^ wave << 20) < mix(m.ready[best].op->chain ^ wave << 20))
                best = i;
        return (long)best;
    default:
        for (size_t i = 0; i < n; i++)
            if (m.ready[i].op->wanted == wave || m.ready[i].run)
                return (long)i;
        return -1;
    }
}

void run(Lock &lock, Machine &m, size_t at)
{
    Task task = m.ready[at];
    m.ready.erase(m.ready.begin() + (long)at);
    Op &op = *task.op;
    if (!task.run)
        op.state = Op::RUNNING;
    m.running++;
    lock.unlock();
    {
        Access access;
        Where was = where;
        const Op *op_was = current_op;
        where = Where{op.work.name.c_str(), op.work.device, op.chain};
        current_op = &op;
        (task.run ? task.run : op.work.run)();
        where = was;
        current_op = op_was;
    }
    lock.lock();
    m.running--;
    if (task.after)
        task.after();
    if (!task.run)
        op_done(m, task.op);
    m.moved.notify_all();
}

void stuck(Machine &m, const OpRef &op)
{
    std::string text;
    unsigned shown = 0;
    for (auto &weak : m.ops) {
        OpRef o = weak.lock();
        if (o && o->state != Op::DONE && shown++ < 12)
            text += "\n    " + o->work.name + " (device " + std::to_string(o->work.device) + ", stream " +
                    std::to_string(o->chain) +
                    (o->state == Op::WAITING ? "): behind others" : "): waits for its peers");
    }
    report("nothing can run, and \"%s\" is waited for; not done are:%s", op->work.name.c_str(), text.c_str());
}
} // namespace

void clock_join(Clock &into, const Clock &from)
{
    if (into.size() < from.size())
        into.resize(from.size());
    for (size_t i = 0; i < from.size(); i++)
        into[i] = std::max(into[i], from[i]);
}

Machine &machine()
{
    static Machine *m = new Machine; /* outlives what is destroyed at exit */
    return *m;
}

double now()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t draw(Machine &m, uint64_t below)
{
    return mix(m.seed * 0x2545f4914f6cdd1du + m.draw++) % below;
}

uint32_t chain_take(Machine &m)
{
    if (!m.free_chains.empty()) {
        uint32_t chain = m.free_chains.back();
        m.free_chains.pop_back();
        return chain;
    }
    m.chain_number.push_back(0);
    return m.next_chain++;
}

void chain_give(Machine &m, uint32_t chain)
{
    m.free_chains.push_back(chain); /* its numbers go on, so that what was on it stays in the past */
}

OpRef op_put(Machine &m, Work work, uint32_t chain, const std::vector<OpRef> &before)
{
    OpRef op = std::make_shared<Op>();
    op->work = std::move(work);
    op->id = m.next_op++;
    op->chain = chain;
    op->number = ++m.chain_number[chain];
    op->clock = m.host;
    check_op(*op);
    if (m.ops.empty())
        m.ops.resize(OPS_KEPT);
    m.ops[op->id % OPS_KEPT] = op;
    if (op->work.rendezvous) {
        op->parts = op->work.rendezvous(op);
        op->parts_left = (unsigned)op->parts.size();
    }
    m.alive++;
    for (const OpRef &b : before) {
        if (!b)
            continue;
        op->before.push_back(b);
        if (b->state != Op::DONE) {
            op->waiting++;
            b->after.push_back(op);
        }
    }
    if (op->waiting == 0)
        start(m, op);
    m.moved.notify_all();
    return op;
}

void op_done(Machine &m, const OpRef &op)
{
    op->state = Op::DONE;
    op->time = now();
    op->work.run = nullptr;
    op->work.rendezvous = nullptr;
    op->parts.clear();
    m.alive--;
    std::vector<OpRef> after;
    after.swap(op->after);
    for (const OpRef &a : after)
        if (--a->waiting == 0)
            start(m, a);
}

void task_add(Machine &m, Task task)
{
    m.ready.push_back(std::move(task));
}

void op_wait(Lock &lock, const OpRef &op)
{
    Machine &m = machine();
    double quiet = now();
    uint64_t wave = 0;
    unsigned taste = 0;
    while (op->state != Op::DONE) {
        if (wave == 0 || draw(m, 16) == 0) {
            wave = ++m.wave;
            taste = (unsigned)draw(m, 5);
            mark_wanted(m, op);
        }
        long at = choose(m, taste, wave);
        if (at >= 0) {
            run(lock, m, (size_t)at);
            quiet = now();
            continue;
        }
        if (!m.ready.empty()) {
            taste = 0;
            continue;
        }
        m.moved.wait_for(lock, std::chrono::milliseconds(100));
        if (m.running > 0 || !m.ready.empty())
            quiet = now();
        if (now() - quiet > timeout_seconds()) {
            lock.unlock();
            stuck(m, op);
            lock.lock();
            quiet = now();
        }
    }
    clock_join(m.host, op->clock);
}

void op_poll(Lock &lock)
{
    Machine &m = machine();
    for (uint64_t turns = 1 + draw(m, 3); turns > 0 && !m.ready.empty(); turns--)
        run(lock, m, (size_t)draw(m, m.ready.size()));
}

} // namespace shim

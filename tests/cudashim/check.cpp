/* Checks of every access, where kernels are compiled for it: instrument.cpp tells of each load and store.
 *
 * Bounds: what a thread touches must be memory of its device, shared memory of its block, its own stack or a constant
 * of the program. Order: for each four bytes it is kept who wrote them last and who read them. An access must be
 * ordered behind those: within a launch by a barrier of the block (or of the warp, in a warp), between ops by streams,
 * events and waits of the host, which the ops' clocks tell. Threads that have used atomics in a launch may have an
 * order of their own, so theirs are not compared within it. Of two halves of four bytes only the later is kept.
 *
 * This finds a missing barrier, event or wait whatever order things ran in. */
#include <algorithm>
#include <cstdlib>
#include <link.h>
#include <sys/mman.h>

#include "kernel.h"

extern "C" __attribute__((weak)) int cudashim_instrumented;

namespace shim
{

thread_local const Op *current_op;

namespace
{
enum : unsigned { OPS = 1 << 16, MANY = 0xffff, MANY_OF_WARP = 0x8000, SYNC = 0x80, MASK = 0x0f, NO_BLOCK = ~0u };

struct Access_ {
    uint32_t op; /* or the number of the block that ran, for shared memory; 0: nobody */
    uint32_t block;
    uint16_t thread, epoch, warp_epoch;
    uint8_t flags; /* bytes, SYNC */
    uint8_t unused;
};
struct Cell {
    Access_ write, read;
    uint32_t other_reader; /* op */
};

struct OpNote { /* by number modulo OPS */
    uint32_t id, chain, number;
    char name[52];
};
OpNote *notes()
{
    static OpNote *all = (OpNote *)calloc(OPS, sizeof(OpNote));
    return all;
}

Cell *device_cells(uintptr_t base, size_t bytes)
{
    static Cell *cells = [bytes] {
        void *p = mmap(nullptr, bytes / 4 * sizeof(Cell), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        return p == MAP_FAILED ? nullptr : (Cell *)p;
    }();
    (void)base;
    return cells;
}

enum { KNOWN = 16 };
struct Local { /* of a host thread: shared memory of the block that it runs, and memory that it has found to be good */
    std::vector<Cell> dynamic, fixed;
    uint32_t run = 0;
    Memory known[KNOWN];
    unsigned count = 0, turn = 0;
    unsigned long frees = 0;
    int device = -1;
};
Local &local()
{
    static thread_local Local of_thread;
    return of_thread;
}

struct Range {
    uintptr_t first, end;
};
int add_segments(struct dl_phdr_info *info, size_t, void *data)
{
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD) {
            uintptr_t first = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            ((std::vector<Range> *)data)->push_back(Range{first, first + info->dlpi_phdr[i].p_memsz});
        }
    return 0;
}
bool in_program(uintptr_t p)
{
    static const std::vector<Range> *all = [] {
        auto *list = new std::vector<Range>;
        dl_iterate_phdr(add_segments, list);
        return list;
    }();
    for (const Range &r : *all)
        if (p >= r.first && p < r.end)
            return true;
    return false;
}

/* Whether op `id` is before `op`; what was so long ago that it is forgotten is. */
bool op_before(uint32_t id, const Op *op)
{
    const OpNote &n = notes()[id % OPS];
    return id == 0 || n.id != id || (n.chain < op->clock.size() && op->clock[n.chain] >= n.number);
}

std::string who(const Access_ &a)
{
    if (a.block == NO_BLOCK)
        return "several blocks";
    std::string text = "block " + std::to_string(a.block);
    if (a.thread == MANY)
        return "several threads of " + text;
    if (a.thread & MANY_OF_WARP)
        return "warp " + std::to_string(a.thread & 0xff) + " of " + text;
    return "thread " + std::to_string(a.thread) + " of " + text;
}

void race_in_block(const void *p, const Access_ &old, bool was_write, bool write, bool shared)
{
    report("race: %s %s memory at %p, which %s %s; no barrier is between them", write ? "writes" : "reads",
           shared ? "shared" : "global", p, who(old).c_str(), was_write ? "wrote" : "read");
}

void race_of_ops(const void *p, uint32_t id, bool was_write, bool write)
{
    const OpNote &n = notes()[id % OPS];
    report("race: %s memory at %p, which %s (stream %u) %s; no event, stream or wait orders them",
           write ? "writes" : "reads", p, n.name, n.chain, was_write ? "wrote" : "read");
}

/* Of one launch, or of one block for shared memory. */
bool ordered_in_launch(const Access_ &old, const Access_ &now)
{
    if ((old.flags | now.flags) & SYNC)
        return true;
    if (old.block != now.block)
        return false;
    if (old.epoch != now.epoch || old.thread == now.thread)
        return true;
    if (old.thread == MANY)
        return false;
    unsigned warp = old.thread & MANY_OF_WARP ? old.thread & 0xffu : old.thread / 32u;
    return warp == now.thread / 32u && old.warp_epoch != now.warp_epoch;
}

void merge_read(Cell &c, const Access_ &now)
{
    Access_ &r = c.read;
    if (r.op != now.op || !(r.flags & now.flags & MASK)) {
        if (r.op != now.op)
            c.other_reader = r.op;
        r = now;
        return;
    }
    uint8_t flags = (uint8_t)(r.flags | now.flags);
    if (r.block != now.block) {
        r.block = NO_BLOCK;
    } else if (r.epoch != now.epoch) {
        r = now; /* what was before the barrier is ordered */
    } else if (r.thread != now.thread) {
        bool same =
            r.thread != MANY && (r.thread & MANY_OF_WARP ? r.thread & 0xffu : r.thread / 32u) == now.thread / 32u;
        if (same && r.warp_epoch != now.warp_epoch)
            r = now;
        else
            r.thread = same ? (uint16_t)(MANY_OF_WARP | now.thread / 32u) : (uint16_t)MANY;
    } else {
        r = now;
    }
    r.flags = flags;
}

/* One cell; false if a race was reported. */
bool touch(Cell &c, const void *p, const Access_ &now, bool write, const Op *op, bool kernel, bool shared)
{
    unsigned mask = now.flags & MASK;
    if (c.write.op && (c.write.flags & mask)) {
        if (c.write.op == now.op) {
            if (kernel && !ordered_in_launch(c.write, now)) {
                race_in_block(p, c.write, true, write, shared);
                return false;
            }
        } else if (!shared && !op_before(c.write.op, op)) {
            race_of_ops(p, c.write.op, true, write);
            return false;
        }
    }
    if (!write) {
        merge_read(c, now);
        return true;
    }
    if (c.read.op && (c.read.flags & mask)) {
        if (c.read.op == now.op) {
            if (kernel && !ordered_in_launch(c.read, now)) {
                race_in_block(p, c.read, false, true, shared);
                return false;
            }
        } else if (!shared && !op_before(c.read.op, op)) {
            race_of_ops(p, c.read.op, false, true);
            return false;
        }
        if (!shared && c.other_reader && c.other_reader != now.op && !op_before(c.other_reader, op)) {
            race_of_ops(p, c.other_reader, false, true);
            return false;
        }
    }
    c.write = now;
    c.read = Access_();
    c.other_reader = 0;
    return true;
}

void touch_range(Cell *cells, uintptr_t offset, const void *p, size_t bytes, Access_ now, bool write, const Op *op,
                 bool kernel, bool shared)
{
    uintptr_t first = offset, end = offset + bytes;
    for (uintptr_t g = first / 4; g * 4 < end; g++) {
        unsigned low = g * 4 < first ? (unsigned)(first - g * 4) : 0,
                 high = (unsigned)std::min<uintptr_t>(4, end - g * 4);
        now.flags = (uint8_t)((now.flags & SYNC) | (((1u << high) - 1) & ~((1u << low) - 1)));
        if (!touch(cells[g], (const char *)p + (g * 4 + low - first), now, write, op, kernel, shared))
            return;
    }
}

bool on()
{
    static const bool wanted = [] {
        const char *text = getenv("CUDASHIM_CHECK");
        return !text || strcmp(text, "0") != 0;
    }();
    return wanted && &cudashim_instrumented;
}

Access_ thread_access(const Block &b, uint32_t op)
{
    const Thread &t = b.threads[b.current];
    Access_ a = {op,
                 (uint32_t)b.number,
                 (uint16_t)b.current,
                 (uint16_t)b.epoch,
                 (uint16_t)t.warp_epoch,
                 (uint8_t)(t.atomics ? (unsigned)SYNC : 0u),
                 0};
    return a;
}

/* Pieces that kernels of this device may touch are remembered until one is freed. */
bool is_known(Local &l, uintptr_t a, unsigned bytes, int device)
{
    if (l.frees != memory_frees() || l.device != device) {
        l.count = l.turn = 0;
        l.frees = memory_frees();
        l.device = device;
    }
    for (unsigned i = 0; i < l.count; i++)
        if (a >= l.known[i].first && a + bytes <= l.known[i].end)
            return true;
    return false;
}

bool bounds(Local &l, const void *p, unsigned bytes, int device)
{
    if (is_known(l, (uintptr_t)p, bytes, device))
        return true;
    std::string bad = memory_complaint(p, bytes, device);
    if (!bad.empty()) {
        report("access of %u bytes at %p: %s", bytes, p, bad.c_str());
        return false;
    }
    if (const Memory *found = memory_find(p)) {
        l.known[l.turn++ % KNOWN] = *found;
        l.count = std::min<unsigned>(l.count + 1, KNOWN);
    }
    return true;
}

void shared_access(Block &b, Local &l, std::vector<Cell> &cells, const char *first, size_t room, const void *p,
                   unsigned bytes, bool write, bool plain)
{
    if (!plain)
        return;
    if (cells.size() < room / 4 + 1)
        cells.resize(room / 4 + 1);
    Access_ now = thread_access(b, l.run);
    touch_range(cells.data(), (uintptr_t)((const char *)p - first), p, bytes, now, write, nullptr, true, true);
}

bool on_stack(const Block &b, const char *p, unsigned bytes)
{
    const Fiber &f = *b.fibers[b.threads[b.current].fiber];
    return p >= f.stack && p + bytes <= f.stack + f.size;
}

void kernel_access(const void *at, unsigned bytes, bool write, bool plain)
{
    Block &b = *the_block;
    const char *p = (const char *)at;
    if (on_stack(b, p, bytes))
        return;
    Local &l = local();
    if (in_device_region(p)) {
        if (bounds(l, p, bytes, where.device) && plain && current_op)
            touch_range(device_cells(0, region_bytes()), (uintptr_t)p - region_base(), p, bytes,
                        thread_access(b, current_op->id), write, current_op, true, false);
        return;
    }
    if (p >= b.shared_map && p < b.shared_end + 4096) {
        if (p < b.shared || p + bytes > b.shared + b.shared_bytes)
            report("access of %u bytes at %p: out of bounds, %td bytes %s the %zu of dynamic shared memory", bytes, at,
                   p < b.shared ? b.shared - p : p + bytes - (b.shared + b.shared_bytes),
                   p < b.shared ? "before" : "behind", b.shared_bytes);
        else
            shared_access(b, l, l.dynamic, b.shared_map, (size_t)(b.shared_end - b.shared_map), p, bytes, write, plain);
        return;
    }
    if (p >= b.tls_first && p < b.tls_end) {
        const char *self = (const char *)&cudashim_self;
        if (p < self || p >= self + sizeof cudashim_self)
            shared_access(b, l, l.fixed, b.tls_first, (size_t)(b.tls_end - b.tls_first), p, bytes, write, plain);
        return;
    }
    if (in_program((uintptr_t)p) || memory_pinned(p))
        return;
    report("access of %u bytes at %p: host memory, or another thread's stack", bytes, at);
}
} // namespace

void check_op(const Op &op)
{
    OpNote &n = notes()[op.id % OPS];
    n.id = op.id;
    n.chain = op.chain;
    n.number = op.number;
    snprintf(n.name, sizeof n.name, "%s", op.work.name.c_str());
}

void check_access(const void *p, unsigned bytes, bool write, bool plain)
{
    if (!on())
        return;
    if (in_kernel())
        kernel_access(p, bytes, write, plain);
    else if (!where.op && in_device_region(p) && !memory_pinned(p))
        report("host code touches device memory at %p", p);
}

void check_range_of(const Op *op, const void *p, size_t bytes, bool write)
{
    if (!on() || !op || !in_device_region(p) || bytes == 0)
        return;
    Access_ now = {op->id, 0, 0, 0, 0, 0, 0};
    touch_range(device_cells(0, region_bytes()), (uintptr_t)p - region_base(), p, bytes, now, write, op, false, false);
}

void check_range(const void *p, size_t bytes, bool write)
{
    check_range_of(current_op, p, bytes, write);
}

void check_block_begins(Block &)
{
    if (on())
        local().run++;
}

} // namespace shim

void cudashim_atomic(const volatile void *p, unsigned bytes)
{
    if (!shim::in_kernel())
        return;
    shim::check_access((const void *)p, bytes, true, false);
    shim::the_block->threads[shim::the_block->current].atomics = true;
}

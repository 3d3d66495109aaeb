/* What the lanes of a warp do together. Lanes named in a mask meet; those that have ended are not waited for, and what
 * is read from them is garbage, as the standard text has it. */
#include <link.h>

#include "kernel.h"

extern "C" {
extern char __start_cudashim_shared[] __attribute__((weak));
}

namespace shim
{

namespace
{
struct Warp {
    Block &b;
    unsigned first, lanes;
    Thread &lane(unsigned i) const { return b.threads[first + i]; }
};

bool same(const Thread &a, const Thread &b)
{
    return a.kind == b.kind && a.mask == b.mask && a.line == b.line &&
           (a.file == b.file || strcmp(a.file, b.file) == 0);
}

const unsigned long long GARBAGE = 0xffffffffffffffffull;

/* The lane that a shuffle reads; itself where the section ends. */
unsigned source(const Thread &t, unsigned me)
{
    unsigned width = (unsigned)t.width, base = me / width * width, lane = (unsigned)t.lane;
    switch (t.kind) {
    case CUDASHIM_SHFL:
        return base + (lane & (width - 1));
    case CUDASHIM_SHFL_UP:
        return me - base >= lane ? me - lane : me;
    case CUDASHIM_SHFL_DOWN:
        return me - base + lane < width ? me + lane : me;
    default:
        return (me ^ lane) < base + width ? me ^ lane : me;
    }
}

unsigned long long fold(const Warp &w, unsigned members, cudashim_meeting kind)
{
    bool first = true;
    unsigned long long r = 0;
    for (unsigned left = members; left; left &= left - 1) {
        unsigned long long v = w.lane((unsigned)__builtin_ctz(left)).value;
        long long s = (long long)v, q = (long long)r;
        r = first                         ? v
            : kind == CUDASHIM_REDUCE_ADD ? r + v
            : kind == CUDASHIM_REDUCE_MIN ? (s < q ? v : r)
            : kind == CUDASHIM_REDUCE_MAX ? (s > q ? v : r)
            : kind == CUDASHIM_REDUCE_AND ? (r & v)
            : kind == CUDASHIM_REDUCE_OR  ? (r | v)
                                          : (r ^ v);
        first = false;
    }
    return r;
}

/* Lanes whose value is `value`, or, for a vote, not zero. */
unsigned lanes_with(const Warp &w, unsigned members, bool vote, unsigned long long value)
{
    unsigned bits = 0;
    for (unsigned left = members; left; left &= left - 1) {
        unsigned i = (unsigned)__builtin_ctz(left);
        bits |= (unsigned)(vote ? w.lane(i).value != 0 : w.lane(i).value == value) << i;
    }
    return bits;
}

unsigned long long outcome(const Warp &w, unsigned me, unsigned members)
{
    const Thread &t = w.lane(me);
    switch (t.kind) {
    case CUDASHIM_SYNCWARP:
        return 0;
    case CUDASHIM_SHFL:
    case CUDASHIM_SHFL_UP:
    case CUDASHIM_SHFL_DOWN:
    case CUDASHIM_SHFL_XOR: {
        unsigned s = source(t, me);
        return members >> s & 1 ? w.lane(s).value : GARBAGE;
    }
    case CUDASHIM_BALLOT:
        return lanes_with(w, members, true, 0);
    case CUDASHIM_ALL:
        return lanes_with(w, members, true, 0) == members;
    case CUDASHIM_ANY:
        return lanes_with(w, members, true, 0) != 0;
    case CUDASHIM_MATCH_ANY:
        return lanes_with(w, members, false, t.value);
    default:
        return fold(w, members, t.kind);
    }
}

/* Whether all lanes of the mask that are left are there; then they get their results and go on. */
bool complete(const Warp &w, unsigned me)
{
    const Thread &t = w.lane(me);
    unsigned members = 0;
    for (unsigned n = 1; n <= 32; n++) { /* the next lane is the likeliest not to be there */
        unsigned i = (me + n) % 32;
        if (!(t.mask >> i & 1) || i >= w.lanes || w.lane(i).ended)
            continue;
        if (!w.lane(i).waits || !same(w.lane(i), t))
            return false;
        members |= 1u << i;
    }
    bool sync = t.kind == CUDASHIM_SYNCWARP;
    for (unsigned left = members; left; left &= left - 1)
        w.lane((unsigned)__builtin_ctz(left)).result = outcome(w, (unsigned)__builtin_ctz(left), members);
    for (unsigned left = members; left; left &= left - 1) {
        unsigned i = (unsigned)__builtin_ctz(left);
        w.lane(i).warp_epoch += sync;
        block_release(w.b, w.first + i);
    }
    return true;
}

Warp warp_of(Block &b, unsigned warp)
{
    unsigned first = warp * 32;
    return Warp{b, first, b.count - first < 32 ? b.count - first : 32};
}

int look(struct dl_phdr_info *info, size_t, void *data)
{
    char **range = (char **)data;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) &h = info->dlpi_phdr[i];
        if (h.p_type != PT_TLS || !info->dlpi_tls_data)
            continue;
        char *base = (char *)info->dlpi_tls_data, *image = (char *)(info->dlpi_addr + h.p_vaddr);
        char *self = (char *)&cudashim_self;
        if (self < base || self >= base + h.p_memsz)
            continue;
        range[0] = base;
        range[1] = base + h.p_memsz;
        range[2] = __start_cudashim_shared ? base + (__start_cudashim_shared - image) : nullptr;
        return 1;
    }
    return 0;
}
} // namespace

void tls_range(char *&first, char *&end, char *&shared)
{
    char *range[3] = {nullptr, nullptr, nullptr};
    dl_iterate_phdr(look, range);
    first = range[0];
    end = range[1];
    shared = range[2];
}

unsigned long long warp_meet(Block &b)
{
    Warp w = warp_of(b, b.current / 32);
    unsigned me = b.current % 32;
    Thread &t = w.lane(me);
    if (!(t.mask >> me & 1))
        report("%s:%d: the mask %08x does not name lane %u, which calls", t.file, t.line, t.mask, me);
    if (t.width <= 0 ? t.kind != CUDASHIM_SYNCWARP : t.width > 32 || (t.width & (t.width - 1)))
        report("%s:%d: width %d is no power of two up to 32", t.file, t.line, t.width);
    if (!complete(w, me))
        block_wait(b);
    return t.result;
}

void warp_try(Block &b, unsigned warp)
{
    Warp w = warp_of(b, warp);
    for (unsigned i = 0; i < w.lanes; i++)
        if (w.lane(i).waits && w.lane(i).kind >= CUDASHIM_SYNCWARP && complete(w, i))
            return;
}

} // namespace shim

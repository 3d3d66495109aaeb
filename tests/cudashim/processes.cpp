/* Ranks that are processes (processes.h). A file is written beside its names and linked to them, so that whoever finds
 * it finds all of it. */
#include "processes.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

namespace shim
{

namespace
{
std::string name_of(const Folder &f, char kind, uint64_t number, int from, int to)
{
    return f.path + "/" + kind + std::to_string(number) + "." + std::to_string(from) + "." + std::to_string(to);
}

std::string rank_file(const Folder &f, const char *what, int rank)
{
    return f.path + "/" + what + "." + std::to_string(rank);
}

bool exists(const std::string &path)
{
    struct stat s;
    return stat(path.c_str(), &s) == 0;
}

void must(bool good, const std::string &what)
{
    if (good)
        return;
    fprintf(stderr, "cudashim: %s: %s\n", what.c_str(), strerror(errno));
    abort();
}

void write_file(const std::string &path, const void *head, size_t head_size, const void *bytes, size_t size)
{
    FILE *file = fopen(path.c_str(), "wb");
    must(file != nullptr, path);
    must(fwrite(head, 1, head_size, file) == head_size && (!size || fwrite(bytes, 1, size, file) == size), path);
    must(fclose(file) == 0, path);
}

std::string aside(const Folder &f)
{
    static std::atomic<unsigned> count;
    return f.path + "/.new." + std::to_string(f.rank) + "." + std::to_string(++count);
}

void say(const Folder &f, const char *what, const std::string &text)
{
    const std::string path = aside(f);
    write_file(path, text.data(), text.size(), nullptr, 0);
    must(rename(path.c_str(), rank_file(f, what, f.rank).c_str()) == 0, path);
}

/* What a rank has said when it came. */
bool come(const Folder &f, int rank, long *pid, int *device)
{
    FILE *file = fopen(rank_file(f, "here", rank).c_str(), "r");
    if (!file)
        return false;
    bool good = fscanf(file, "%ld %d", pid, device) == 2;
    fclose(file);
    return good;
}

void remove_folder(const std::string &path)
{
    if (DIR *d = opendir(path.c_str())) {
        while (struct dirent *entry = readdir(d))
            unlink((path + "/" + entry->d_name).c_str());
        closedir(d);
    }
    rmdir(path.c_str());
}
} // namespace

std::string folder_make()
{
    static std::atomic<unsigned> count;
    const char *base = getenv("CUDASHIM_PROCESSES");
    if (!base || !*base)
        return "";
    const std::string path = std::string(base) + "/" + std::to_string((long)getpid()) + "." + std::to_string(++count);
    must(mkdir(path.c_str(), 0700) == 0, path);
    return path;
}

void folder_join(const Folder &f, int device)
{
    say(f, "here", std::to_string((long)getpid()) + " " + std::to_string(device) + "\n");
}

int folder_arrived(const Folder &f)
{
    int there = 0, device, mine = -1;
    long pid;
    come(f, f.rank, &pid, &mine);
    for (int r = 0; r < f.size; r++) {
        if (!come(f, r, &pid, &device))
            continue;
        there++;
        if (r != f.rank && device == mine)
            report("ncclCommInitRank: ranks %d and %d are on one device, %d", r, f.rank, device);
    }
    return there;
}

bool folder_lost(Folder &f)
{
    if (f.lost || now() - f.looked < 0.02)
        return f.lost;
    f.looked = now();
    for (int r = 0; r < f.size && !f.lost; r++) {
        long pid;
        int device;
        const bool dead = come(f, r, &pid, &device) && kill((pid_t)pid, 0) != 0 && errno == ESRCH;
        f.lost = exists(rank_file(f, "gone", r)) || (dead && !exists(rank_file(f, "left", r)));
    }
    return f.lost;
}

void folder_say_gone(const Folder &f)
{
    say(f, "gone", "");
}

void folder_leave(const Folder &f, bool orderly)
{
    bool last = true;
    say(f, orderly ? "left" : "gone", "");
    for (int r = 0; r < f.size; r++)
        last = last && (exists(rank_file(f, "left", r)) || exists(rank_file(f, "gone", r)));
    if (last)
        remove_folder(f.path);
}

void folder_post(const Folder &f, char kind, uint64_t number, const std::vector<int> &readers, const Letter &letter,
                 const void *bytes, size_t size)
{
    const std::string path = aside(f);
    if (!exists(f.path)) /* all have left, this rank too */
        return;
    write_file(path, &letter, sizeof letter, bytes, size);
    for (int r : readers)
        must(link(path.c_str(), name_of(f, kind, number, f.rank, r).c_str()) == 0, path);
    unlink(path.c_str());
}

bool folder_has(const Folder &f, char kind, uint64_t number, int from)
{
    return exists(name_of(f, kind, number, from, f.rank));
}

void folder_take(const Folder &f, char kind, uint64_t number, int from, Letter *letter, std::vector<char> *bytes)
{
    const std::string path = name_of(f, kind, number, from, f.rank);
    FILE *file = fopen(path.c_str(), "rb");
    must(file != nullptr, path);
    must(fread(letter, sizeof *letter, 1, file) == 1, path);
    char piece[65536];
    for (size_t n; (n = fread(piece, 1, sizeof piece, file)) > 0;)
        bytes->insert(bytes->end(), piece, piece + n);
    fclose(file);
    unlink(path.c_str());
}

} // namespace shim

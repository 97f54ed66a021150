/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Sizes, exceptions, the configuration and swaps of usm/rambrain.hpp, which includes this file.
 *
 * The first of these files that exists is read: one named by setCustomConfigPath(),
 * ~/.rambrain.conf, /etc/rambrain.conf.
 *
 *     [default]                       # for all programs
 *     memory     = 4 GB               # B, kB, MB, GB; bytes without a unit
 *     swapMemory = 200 GB
 *     swapfiles  = /mnt/scratch/swap-%d-%d
 *     [solver]                        # for the program of that name, whichever comes first
 *     memory     = 8 GB
 *
 * Keys: memoryManager, swap, swapfiles, memory, swapMemory, enableDMA, policy; others are
 * ignored. */
#ifndef USM_RAMBRAIN_CONFIG_HPP
#define USM_RAMBRAIN_CONFIG_HPP

#include <usm/init.h>
#include <usm/status.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace rambrain
{

typedef std::uint64_t global_bytesize;

inline constexpr global_bytesize kib = 1024, mib = kib * kib, gig = mib * kib;

class rambrainException : public std::exception
{
  public:
    explicit rambrainException(std::string what) : what_(std::move(what))
    {
    }
    const char *what() const noexcept override
    {
        return what_.c_str();
    }

  private:
    std::string what_;
};

/** No room, an object in use, or a failure of libusm, whose message it has. */
class memoryException : public rambrainException
{
  public:
    using rambrainException::rambrainException;
};
class incompleteSetupException : public rambrainException
{
  public:
    using rambrainException::rambrainException;
};
class unexpectedStateException : public rambrainException
{
  public:
    using rambrainException::rambrainException;
};

/** What happens when the swap is full.  Nobody is asked: interactive is fixed. */
enum class swapPolicy { fixed, autoextendable, interactive };

namespace detail
{

inline std::string trimmed(const std::string &s)
{
    std::size_t begin = s.find_first_not_of(" \t\r"), end = s.find_last_not_of(" \t\r");

    return begin == std::string::npos ? "" : s.substr(begin, end - begin + 1);
}

inline std::string lower(std::string s)
{
    std::transform(s.begin(), s.end(), s.begin(), [](unsigned char c) { return std::tolower(c); });
    return s;
}

inline void parse(std::string &to, const std::string &text)
{
    to = text;
}

/* "5 GB", "1.5gb", "4096".  What is no size leaves the value as it is. */
inline void parse(global_bytesize &to, const std::string &text)
{
    char       *end     = nullptr;
    double      number  = std::strtod(text.c_str(), &end);
    std::string unit    = lower(trimmed(end));
    std::string known[] = {"b", "kb", "mb", "gb"};
    std::size_t at      = unit.empty() ? 0 : std::size_t(std::find(known, known + 4, unit) - known);

    if (end != text.c_str() && number >= 0 && at < 4)
        to = global_bytesize(number * double(std::uint64_t(1) << (10 * at)));
}

inline void parse(bool &to, const std::string &text)
{
    to = lower(text) != "false" && text != "0";
}

inline void parse(swapPolicy &to, const std::string &text)
{
    if (text == "fixed" || text == "interactive")
        to = text == "fixed" ? swapPolicy::fixed : swapPolicy::interactive;
    else if (text == "autoextendable")
        to = swapPolicy::autoextendable;
}

/* Half of what is free, as Rambrain takes it. */
inline global_bytesize half_of_memory()
{
    std::ifstream   info("/proc/meminfo");
    std::string     line;
    global_bytesize kilobytes = 0;

    while (std::getline(info, line) && kilobytes == 0)
        if (line.compare(0, 13, "MemAvailable:") == 0)
            kilobytes = std::strtoull(line.c_str() + 13, nullptr, 10);
    return kilobytes ? kilobytes * kib / 2 : gig;
}

inline global_bytesize half_of_disk()
{
    struct statvfs s;

    return ::statvfs(".", &s) == 0 && s.f_bavail ? global_bytesize(s.f_bavail) * s.f_frsize / 2
                                                 : gig;
}

/* A folder in memory is no place to spill to, and one without a name is no wish. */
inline void spill_to_folder_of(const char *filemask)
{
    const long    tmpfs = 0x01021994;
    std::string   mask(filemask ? filemask : ""), folder;
    std::size_t   slash = mask.rfind('/');
    const char   *value = nullptr, *origin = nullptr;
    struct statfs s;

    if (slash == std::string::npos)
        return;
    folder = slash ? mask.substr(0, slash) : "/";
    if (::statfs(folder.c_str(), &s) != 0 || long(s.f_type) == tmpfs)
        return;
    if (usm_config_get("spill", &value, &origin) == USM_OK && std::string(origin) == "default")
        (void)usm_config_set("spill", ("file:" + folder).c_str());
}

} // namespace detail

class configLineBase
{
  public:
    explicit configLineBase(std::string key) : name(std::move(key))
    {
    }
    virtual ~configLineBase()                       = default;
    virtual void      setValue(const std::string &) = 0;
    const std::string name;
};

template <class T> class configLine : public configLineBase
{
  public:
    configLine(const std::string &key, T v) : configLineBase(key), value(std::move(v))
    {
    }
    void setValue(const std::string &text) override
    {
        detail::parse(value, text);
    }
    T value;
};

struct configuration {
    configLine<std::string>     memoryManager{"memoryManager", "cyclicManagedMemory"};
    configLine<std::string>     swap{"swap", "managedFileSwap"};
    configLine<std::string>     swapfiles{"swapfiles", "rambrainswap-%d-%d"};
    configLine<global_bytesize> memory{"memory", detail::half_of_memory()};
    configLine<global_bytesize> swapMemory{"swapMemory", detail::half_of_disk()};
    configLine<bool>            enableDMA{"enableDMA", false};
    configLine<swapPolicy>      policy{"policy", swapPolicy::autoextendable};

    std::vector<configLineBase *> configOptions{&memoryManager, &swap,      &swapfiles, &memory,
                                                &swapMemory,    &enableDMA, &policy};

    configuration() = default;
    configuration(const configuration &other)
    {
        *this = other;
    }
    configuration &operator=(const configuration &other)
    {
        memoryManager.value = other.memoryManager.value;
        swap.value          = other.swap.value;
        swapfiles.value     = other.swapfiles.value;
        memory.value        = other.memory.value;
        swapMemory.value    = other.swapMemory.value;
        enableDMA.value     = other.enableDMA.value;
        policy.value        = other.policy.value;
        return *this;
    }
};

class configReader
{
  public:
    /** Reads the first file that can be opened; without one the defaults hold. */
    bool readConfig()
    {
        const char *home = std::getenv("HOME");

        config_ = configuration();
        for (const std::string &path : {custom_, std::string(home ? home : "") + "/.rambrain.conf",
                                        std::string("/etc/rambrain.conf")}) {
            std::ifstream file(path);

            if (path.empty() || !file)
                continue;
            parse(file);
            break;
        }
        return is_read_ = true;
    }
    void setCustomConfigPath(const std::string &path)
    {
        custom_ = path;
    }
    configuration &getConfig()
    {
        if (!is_read_)
            (void)readConfig();
        return config_;
    }
    bool readSuccessfully() const
    {
        return is_read_;
    }
    void setReread()
    {
        is_read_ = false;
    }
    std::string getApplicationName() const
    {
        char        path[4096];
        ssize_t     n = ::readlink("/proc/self/exe", path, sizeof path);
        std::string name(path, n > 0 ? std::size_t(n) : 0);

        return name.substr(name.rfind('/') + 1);
    }

  private:
    using lines = std::vector<std::pair<std::string, std::string>>;

    void apply(const lines &all)
    {
        for (const auto &line : all)
            for (configLineBase *option : config_.configOptions)
                if (option->name == line.first)
                    option->setValue(line.second);
    }
    void parse(std::istream &file)
    {
        lines       common, own, ignored, *block = &ignored;
        std::string line, name = getApplicationName();

        while (std::getline(file, line)) {
            line              = detail::trimmed(line.substr(0, line.find('#')));
            std::size_t equal = line.find('=');

            if (line.size() > 2 && line.front() == '[' && line.back() == ']') {
                line  = detail::trimmed(line.substr(1, line.size() - 2));
                block = line == name ? &own : line == "default" ? &common : &ignored;
            } else if (equal != std::string::npos) {
                block->emplace_back(detail::trimmed(line.substr(0, equal)),
                                    detail::trimmed(line.substr(equal + 1)));
            }
        }
        apply(common);
        apply(own);
    }

    configuration config_;
    std::string   custom_;
    bool          is_read_ = false;
};

class managedMemory;

/* ---- swaps ------------------------------------------------------------------------- */

/** The room behind memory: how many bytes of objects may be beyond the limit. */
class managedSwap
{
  public:
    explicit managedSwap(global_bytesize size) : size_(size)
    {
    }
    managedSwap(const managedSwap &)            = delete;
    managedSwap &operator=(const managedSwap &) = delete;
    virtual ~managedSwap()                      = default;

    global_bytesize getSwapSize() const
    {
        return size_;
    }
    global_bytesize getUsedSwap() const
    {
        return used_;
    }
    global_bytesize getFreeSwap() const
    {
        return size_ > used_ ? size_ - used_ : 0;
    }
    swapPolicy getSwapPolicy() const
    {
        return policy_;
    }
    swapPolicy setSwapPolicy(swapPolicy policy)
    {
        return policy_.exchange(policy);
    }
    bool extendSwap(global_bytesize size)
    {
        size_ += size;
        return true;
    }
    virtual bool is_memory() const
    {
        return false;
    }

  private:
    friend class managedMemory;
    std::atomic<global_bytesize> size_, used_{0};
    std::atomic<swapPolicy>      policy_{swapPolicy::fixed};
};

/** Keeps what exceeds the limit in memory: for tests of programs. */
class managedDummySwap : public managedSwap
{
  public:
    using managedSwap::managedSwap;
    bool is_memory() const override
    {
        return true;
    }
};

/** Keeps it in files: in the folder of `filemask`, if it names one and nothing else set USM_SPILL
 * before the first buffer; otherwise as USM_SPILL says.  The files have no names. */
class managedFileSwap : public managedSwap
{
  public:
    managedFileSwap(global_bytesize size, const char *filemask, global_bytesize oneFile = 0,
                    bool enableDMA = false)
        : managedSwap(size)
    {
        (void)oneFile, (void)enableDMA; /* files are not divided, and always bypass the cache */
        detail::spill_to_folder_of(filemask);
    }
};

} // namespace rambrain
#endif

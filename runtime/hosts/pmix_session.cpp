#include "troupe/runtime/hosts/pmix_session.hpp"

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>

#include "troupe/runtime/text.hpp"

namespace troupe::internal {

// The part of the PMIx standard 4 that is used here, as in its C header.
namespace pmix {

constexpr int success = 0;
constexpr int not_found = -46;

constexpr std::uint32_t any_rank = UINT32_MAX - 1;

constexpr std::size_t key_size = 512;

struct process_name {
  char job[256];
  std::uint32_t rank;
};

enum class value_type : std::uint16_t {
  text = 3,
  integer = 6,
  unsigned16 = 13,
  unsigned32 = 14
};

struct value {
  value_type type;
  union {
    const char* text;
    int integer;
    std::uint16_t unsigned16;
    std::uint32_t unsigned32;
    char any[24];
  };
};

/// To publish something, and to ask for something in a certain way.
struct info {
  char key[key_size];
  std::uint32_t flags;
  value content;
};

/// To look up what was published; the answer goes into the same place.
struct publication {
  process_name from;
  char key[key_size];
  value content;
};

} // namespace pmix

namespace {

constexpr auto soname = "libpmix.so.2";

template <class Entry>
expected<Entry> named(std::string_view name) {
  Entry result{};
  if (name.size() >= pmix::key_size)
    return failure(ec::invalid_config,
                   concat("a name for PMIx has ", name.size(), " bytes"));
  name.copy(result.key, name.size());
  return result;
}

} // namespace

struct pmix_session::library {
  int (*init)(pmix::process_name*, pmix::info*, std::size_t);
  int (*finalize)(const pmix::info*, std::size_t);
  int (*get)(const pmix::process_name*, const char*, const pmix::info*,
             std::size_t, pmix::value**);
  int (*publish)(const pmix::info*, std::size_t);
  int (*lookup)(pmix::publication*, std::size_t, const pmix::info*,
                std::size_t);
  const char* (*error_text)(int);
  pmix::process_name own;

  /// The error that the code *x* of *what* stands for.
  expected<void> check(int x, std::string_view what) const {
    if (x == pmix::success)
      return {};
    return failure(ec::protocol, concat("PMIx: ", what, ": ", error_text(x)));
  }

  template <class Function>
  bool find(void* handle, const char* name, Function& to) {
    to = reinterpret_cast<Function>(::dlsym(handle, name));
    return to != nullptr;
  }
};

expected<std::unique_ptr<pmix_session>> pmix_session::open() {
  // Stays loaded: it has threads. Its components look for its symbols.
  auto handle = ::dlopen(soname, RTLD_NOW | RTLD_GLOBAL);
  if (!handle)
    return failure(ec::unsupported, concat("mpirun needs ", soname,
                                           " on each host: ", ::dlerror()));
  auto x = std::make_unique<library>();
  if (!x->find(handle, "PMIx_Init", x->init)
      || !x->find(handle, "PMIx_Finalize", x->finalize)
      || !x->find(handle, "PMIx_Get", x->get)
      || !x->find(handle, "PMIx_Publish", x->publish)
      || !x->find(handle, "PMIx_Lookup", x->lookup)
      || !x->find(handle, "PMIx_Error_string", x->error_text))
    return failure(ec::unsupported,
                   concat(soname, " is not a PMIx library: ", ::dlerror()));
  TROUPE_TRY_VOID(x->check(x->init(&x->own, nullptr, 0), "cannot connect"));
  return std::unique_ptr<pmix_session>{new pmix_session{std::move(x)}};
}

pmix_session::pmix_session(std::unique_ptr<library> x)
  : library_(std::move(x)) {}

pmix_session::~pmix_session() {
  if (owner_.is_here())
    library_->finalize(nullptr, 0);
}

expected<int> pmix_session::host_count() const {
  auto job = library_->own;
  job.rank = pmix::any_rank;
  pmix::value* found = nullptr;
  TROUPE_TRY_VOID(
    library_->check(library_->get(&job, "pmix.num.nodes", nullptr, 0, &found),
                    "the number of hosts"));
  auto result = found->type == pmix::value_type::unsigned32
                  ? static_cast<int>(found->unsigned32)
                  : 0;
  std::free(found);
  if (result < 1)
    return failure(ec::protocol, "PMIx: the number of hosts is missing");
  return result;
}

int pmix_session::local_rank() const {
  pmix::value* found = nullptr;
  if (library_->get(&library_->own, "pmix.lrank", nullptr, 0, &found)
      != pmix::success)
    return 0;
  auto result =
    found->type == pmix::value_type::unsigned16 ? found->unsigned16 : 0;
  std::free(found);
  return result;
}

expected<void> pmix_session::publish(const std::string& name,
                                     const std::string& text) {
  TROUPE_TRY(auto entry, named<pmix::info>(name));
  entry.content.type = pmix::value_type::text;
  entry.content.text = text.c_str();
  return library_->check(library_->publish(&entry, 1),
                         concat("cannot publish ", name));
}

expected<std::string> pmix_session::wait_for(const std::string& name) const {
  TROUPE_TRY(auto found, look_up(name, true));
  if (!found)
    return failure(ec::protocol, concat("PMIx: there is no ", name));
  return std::move(*found);
}

expected<std::optional<std::string>>
pmix_session::find(const std::string& name) const {
  return look_up(name, false);
}

expected<std::optional<std::string>>
pmix_session::look_up(const std::string& name, bool waits) const {
  TROUPE_TRY(auto entry, named<pmix::publication>(name));
  TROUPE_TRY(auto wait, named<pmix::info>("pmix.wait"));
  wait.content.type = pmix::value_type::integer;
  wait.content.integer = 1; // entry
  auto code = library_->lookup(&entry, 1, &wait, waits ? 1 : 0);
  if (code == pmix::not_found)
    return std::nullopt;
  TROUPE_TRY_VOID(library_->check(code, concat("cannot look up ", name)));
  if (entry.content.type != pmix::value_type::text || !entry.content.text)
    return failure(ec::protocol,
                   concat("PMIx: ", name, " has another type than text"));
  std::string result{entry.content.text};
  std::free(const_cast<char*>(entry.content.text));
  return result;
}

} // namespace troupe::internal

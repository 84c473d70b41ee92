#include "troupe/runtime/process/function_address.hpp"

#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <unistd.h>

#include "troupe/runtime/process/start_program.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {
namespace {

struct module {
  std::string path; // Empty for the program.
  std::uint64_t base = 0;
  std::string build_id;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> code; // From, to.

  bool has_code_at(std::uint64_t address) const {
    for (auto [from, to] : code)
      if (address >= from && address < to)
        return true;
    return false;
  }
};

std::size_t padded(std::size_t size) {
  return (size + 3) & ~std::size_t{3};
}

/// Finds the build id among the notes in *size* bytes at *notes*.
std::string build_id_in(const unsigned char* notes, std::size_t size) {
  std::string result;
  while (result.empty() && size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) head;
    std::memcpy(&head, notes, sizeof(head));
    auto* name = notes + sizeof(head);
    auto* text = name + padded(head.n_namesz);
    auto whole = sizeof(head) + padded(head.n_namesz) + padded(head.n_descsz);
    if (whole > size)
      break;
    if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == 4
        && std::memcmp(name, "GNU", 4) == 0)
      append_hex(result, {reinterpret_cast<const char*>(text), head.n_descsz});
    notes += whole;
    size -= whole;
  }
  return result;
}

module read_module(const dl_phdr_info& info) {
  module result;
  result.path = info.dlpi_name ? info.dlpi_name : "";
  result.base = info.dlpi_addr;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const auto& part = info.dlpi_phdr[i];
    auto from = info.dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_LOAD && (part.p_flags & PF_X) != 0)
      result.code.emplace_back(from, from + part.p_memsz);
    if (part.p_type == PT_NOTE && result.build_id.empty())
      result.build_id = build_id_in(
        reinterpret_cast<const unsigned char*>(from), part.p_filesz);
  }
  return result;
}

/// The first loaded module for which *wanted* answers true.
template <class Predicate>
std::optional<module> find_module(Predicate wanted) {
  struct search {
    Predicate& wanted;
    std::optional<module> found;
  } state{wanted, std::nullopt};
  ::dl_iterate_phdr(
    [](dl_phdr_info* info, std::size_t, void* data) {
      auto& state = *static_cast<search*>(data);
      auto candidate = read_module(*info);
      if (!state.wanted(candidate))
        return 0;
      state.found = std::move(candidate);
      return 1;
    },
    &state);
  return std::move(state.found);
}

std::optional<module> module_of_path(const std::string& path) {
  return find_module([&](const module& x) { return x.path == path; });
}

std::string readable(const std::string& module_path) {
  if (!module_path.empty())
    return module_path;
  return "the program " + own_program().value_or("");
}

std::string or_none(const std::string& build_id) {
  return build_id.empty() ? "none" : build_id;
}

} // namespace

expected<function_address> locate(const void* fn, std::string_view what) {
  auto address = reinterpret_cast<std::uint64_t>(fn);
  auto found =
    find_module([=](const module& x) { return x.has_code_at(address); });
  if (!found)
    return failure(ec::invalid_config,
                   std::string{what}
                     + " is not a function of this program or of one of its "
                       "libraries");
  return function_address{found->path, address - found->base, found->build_id};
}

std::string program_build_id() {
  auto program = module_of_path("");
  return program ? program->build_id : std::string{};
}

expected<const void*> resolve(const function_address& address,
                              std::string_view what) {
  auto name = std::string{what};
  auto found = module_of_path(address.module);
  if (!found) {
    // Kept open: the function must stay where it is.
    if (!::dlopen(address.module.c_str(), RTLD_NOW | RTLD_GLOBAL))
      return failure(ec::invalid_config,
                     "the library of " + name
                       + " cannot be loaded: " + std::string{::dlerror()});
    found = module_of_path(address.module);
  }
  if (!found)
    return failure(ec::invalid_config, address.module + ", the library of "
                                         + name
                                         + ", "
                                           "was loaded under another name");
  if (found->build_id != address.build_id)
    return failure(ec::invalid_config,
                   readable(address.module) + " has build id "
                     + or_none(found->build_id) + " here, but " + name
                     + " comes from build id " + or_none(address.build_id)
                     + "; start every process from the same build");
  if (!found->has_code_at(found->base + address.offset))
    return failure(ec::invalid_config,
                   concat(readable(address.module), " has no code at offset ",
                          address.offset, ", where ", name, " should be"));
  return reinterpret_cast<const void*>(found->base + address.offset);
}

} // namespace troupe::internal

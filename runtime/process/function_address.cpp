#include "troupe/runtime/process/function_address.hpp"

#include <optional>
#include <utility>

#include <dlfcn.h>

#include "troupe/runtime/process/loaded_modules.hpp"
#include "troupe/runtime/process/start_program.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {
namespace {

/// The first loaded module for which *wanted* answers true.
template <class Predicate>
std::optional<loaded_module> find_module(Predicate wanted) {
  std::optional<loaded_module> result;
  visit_modules([&](loaded_module x) {
    if (wanted(x))
      result = std::move(x);
    return !result;
  });
  return result;
}

std::optional<loaded_module> module_of_path(const std::string& path) {
  return find_module([&](const loaded_module& x) { return x.path == path; });
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
    find_module([=](const loaded_module& x) { return x.has_code_at(address); });
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
    return failure(ec::invalid_config,
                   concat(address.module, ", the library of ", name,
                          ", was loaded under another name"));
  if (found->build_id != address.build_id)
    return failure(ec::invalid_config,
                   concat(readable(address.module), " has build id ",
                          or_none(found->build_id), " here, but ", name,
                          " comes from build id ", or_none(address.build_id),
                          "; start every process from the same build"));
  if (!found->has_code_at(found->base + address.offset))
    return failure(ec::invalid_config,
                   concat(readable(address.module), " has no code at offset ",
                          address.offset, ", where ", name, " should be"));
  return reinterpret_cast<const void*>(found->base + address.offset);
}

} // namespace troupe::internal

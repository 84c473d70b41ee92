#include "troupe/runtime/report/report.hpp"

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "troupe/runtime/rank_names.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

// Not `quoted`: that would be `std::quoted` for a std::string.
std::string in_quotes(std::string_view text) {
  return '"' + std::string{text} + '"';
}

std::string report_name(const report_batch& x) {
  return concat("report ", x.index);
}

expected<void> check_names(const report_batch& x) {
  std::map<std::string_view, std::vector<int>> ranks_by_name;
  for (std::size_t rank = 0; rank < x.parts.size(); ++rank)
    if (auto& part = x.parts[rank])
      ranks_by_name[part->name].push_back(static_cast<int>(rank));
  if (ranks_by_name.size() < 2)
    return {};
  auto names = joined(ranks_by_name, ", ", [](auto& x) {
    return concat(in_quotes(x.first), " by ", rank_list(x.second));
  });
  return failure(ec::conflict,
                 report_name(x)
                   + ": the ranks give its checkpoint different names: "
                   + names);
}

/// Refuses a file of one rank at whose name another rank has a folder.
expected<void>
check_folders(const report_batch& x,
              const std::unordered_map<std::string_view, std::size_t>& owner) {
  for (auto& [path, rank] : owner)
    for (auto end = path.find('/'); end != path.npos;
         end = path.find('/', end + 1))
      if (auto file = owner.find(path.substr(0, end)); file != owner.end())
        return failure(ec::conflict,
                       concat(report_name(x), ": rank ", file->second, " adds ",
                              in_quotes(file->first), " and rank ", rank, ' ',
                              in_quotes(path), " to checkpoint ",
                              in_quotes(x.parts[rank]->name),
                              ": one is a file where the other has a folder"));
  return {};
}

} // namespace

expected<void> check_parts(const report_batch& x) {
  TROUPE_TRY_VOID(check_names(x));
  std::unordered_map<std::string_view, std::size_t> owner;
  for (std::size_t rank = 0; rank < x.parts.size(); ++rank) {
    if (!x.parts[rank])
      continue;
    for (auto& file : x.parts[rank]->files) {
      auto [i, added] = owner.emplace(file.path, rank);
      if (!added)
        return failure(ec::conflict,
                       concat(report_name(x), ": ",
                              i->second == rank
                                ? concat("rank ", rank, " adds ")
                                : concat("rank ", i->second, " and rank ", rank,
                                         " both add "),
                              in_quotes(file.path),
                              i->second == rank ? " twice to " : " to ",
                              "checkpoint ", in_quotes(x.parts[rank]->name)));
    }
  }
  return check_folders(x, owner);
}

std::string_view to_string(meeting_kind x) noexcept {
  return x == meeting_kind::barrier ? "barrier" : "broadcast";
}

} // namespace troupe::internal

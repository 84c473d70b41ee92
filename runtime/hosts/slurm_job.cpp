#include "troupe/runtime/hosts/slurm_job.hpp"

#include <algorithm>
#include <charconv>
#include <climits>
#include <utility>

#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// Ids of steps from here on are Slurm's own: of the batch script, of the
/// interactive step.
constexpr std::int64_t first_special_step = 4'294'967'290;

tl::unexpected<error> slurm_contradiction(std::string sentence) {
  return failure(ec::invalid_config, std::move(sentence));
}

/// A variable with the list of nodes.
struct node_list {
  std::string_view name;
  std::string_view text;
};

/// The first of *names* that is set.
std::optional<node_list>
find_node_list(const environment_reader& variables,
               std::initializer_list<std::string_view> names) {
  for (auto name : names)
    if (auto text = variables.text_of(name))
      return node_list{name, *text};
  return std::nullopt;
}

/// Empty if the variable is not set.
expected<std::vector<int>> counts_of(const environment_reader& variables,
                                     std::string_view name, std::size_t size,
                                     std::string_view list) {
  auto text = variables.text_of(name);
  if (!text)
    return std::vector<int>{};
  TROUPE_TRY(auto result, expand_slurm_counts(*text, name));
  if (result.size() != size)
    return slurm_contradiction(
      concat(name, '=', cut_text(*text, 200), " is for ",
             counted(result.size(), "node"), ", but ", list, " names ", size));
  return result;
}

expected<std::optional<std::size_t>>
own_node(const environment_reader& variables,
         const std::vector<std::string>& names, bool of_step) {
  auto node = variables.text_of("SLURMD_NODENAME");
  if (!node)
    return std::nullopt;
  auto i = std::ranges::find(names, *node);
  if (i != names.end())
    return static_cast<std::size_t>(i - names.begin());
  // Only a command of salloc may be elsewhere, or inherit another job's name.
  if (of_step
      || (variables.text_of("SLURM_PROCID")
          && !has_step_of_other_job(variables)))
    return slurm_contradiction(concat("SLURMD_NODENAME=", *node,
                                      " is not one of the nodes, ",
                                      to_short_text(names)));
  return std::nullopt;
}

/// Whether a node of the step is not one of the job.
bool has_other_nodes(const environment_reader& variables) {
  auto sorted_nodes = [&variables](std::string_view name) {
    auto text = variables.text_of(name);
    std::vector<std::string> nodes;
    if (text)
      nodes = expand_host_list(*text, name).value_or(nodes);
    std::ranges::sort(nodes);
    return nodes;
  };
  auto of_job = sorted_nodes("SLURM_JOB_NODELIST");
  return !of_job.empty()
         && !std::ranges::includes(of_job, sorted_nodes("SLURM_STEP_NODELIST"));
}

} // namespace

bool has_step_of_other_job(const environment_reader& variables) {
  auto step = variables.number_of("SLURM_STEP_ID");
  if (!step || !*step)
    return false;
  if (has_other_nodes(variables))
    return true;
  // Both of the step in a task of `srun`, unless that has --preserve-env. A
  // batch script is number 0.
  auto differ = [&variables](std::string_view a, std::string_view b) {
    auto x = variables.text_of(a);
    auto y = variables.text_of(b);
    return x && y && *x != *y;
  };
  return **step < first_special_step && variables.text_of("SLURM_PROCID") == "0"
         && (differ("SLURM_NNODES", "SLURM_STEP_NUM_NODES")
             || differ("SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"));
}

expected<std::optional<slurm_job>>
read_slurm_job(const environment_reader& variables) {
  auto id = variables.text_of("SLURM_JOB_ID");
  if (!id)
    return std::nullopt;
  auto array = variables.text_of("SLURM_ARRAY_JOB_ID");
  auto element = variables.text_of("SLURM_ARRAY_TASK_ID");
  if (array.has_value() != element.has_value())
    return slurm_contradiction("of SLURM_ARRAY_JOB_ID and SLURM_ARRAY_TASK_ID, "
                               "only one is set");
  slurm_job result;
  // The last element has the id of the array.
  result.name = array ? concat(*array, '_', *element) : std::string{*id};
  TROUPE_TRY(auto restarts, variables.number_of("SLURM_RESTART_COUNT"));
  result.restarts =
    static_cast<int>(std::min<std::int64_t>(restarts.value_or(0), INT_MAX));
  return result;
}

std::string to_string(const slurm_job& x) {
  auto result = "Slurm job " + x.name;
  if (x.restarts > 0)
    result += concat(" (restart ", x.restarts, ')');
  return result;
}

expected<std::optional<slurm_task>>
read_slurm_task(const environment_reader& variables) {
  if (!variables.text_of("SLURM_JOB_ID"))
    return std::nullopt;
  TROUPE_TRY(auto step, variables.number_of("SLURM_STEP_ID"));
  if (!step || *step >= first_special_step || has_step_of_other_job(variables))
    return std::nullopt;
  TROUPE_TRY(auto number, variables.number_of("SLURM_PROCID"));
  if (!number)
    return slurm_contradiction("SLURM_STEP_ID is set, but SLURM_PROCID is not: "
                               "parts of Slurm's variables are missing; pass "
                               "all of them, or unset SLURM_JOB_ID");
  TROUPE_TRY(auto count, variables.number_of("SLURM_STEP_NUM_TASKS"));
  if (count && *number >= *count)
    return slurm_contradiction(concat(
      "SLURM_PROCID=", *number, " is not below SLURM_STEP_NUM_TASKS=", *count));
  TROUPE_TRY(auto local, variables.number_of("SLURM_LOCALID"));
  return slurm_task{*number, local.value_or(0), count};
}

expected<std::vector<std::vector<std::string>>>
read_slurm_components(const environment_reader& variables) {
  std::vector<std::vector<std::string>> result;
  TROUPE_TRY(auto count, variables.number_of("SLURM_HET_SIZE"));
  // An `srun` that makes its own job sets the old names only.
  for (std::string_view group : {"_HET_GROUP_", "_PACK_GROUP_"}) {
    // A job that is submitted from another one inherits the variables of that.
    if (variables.text_of(concat("SLURM_JOB_ID", group, 0))
        != variables.text_of("SLURM_JOB_ID"))
      continue;
    for (std::int64_t i = 0; i < count.value_or(0); ++i) {
      auto name = concat("SLURM_JOB_NODELIST", group, i);
      auto text = variables.text_of(name);
      if (!text)
        return slurm_contradiction(
          concat("SLURM_HET_SIZE=", *count, ", but ", name, " is not set"));
      TROUPE_TRY(auto nodes, expand_host_list(*text, name));
      result.push_back(std::move(nodes));
    }
    break;
  }
  return result;
}

expected<slurm_nodes> read_slurm_nodes(const environment_reader& variables,
                                       bool of_step) {
  slurm_nodes result;
  auto list =
    of_step
      ? find_node_list(variables, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"})
      : find_node_list(variables, {"SLURM_JOB_NODELIST", "SLURM_NODELIST",
                                   "SLURM_JOB_NODELIST_HET_GROUP_0"});
  if (!list)
    return slurm_contradiction(
      concat("SLURM_JOB_ID=", *variables.text_of("SLURM_JOB_ID"),
             " is set, but SLURM_JOB_NODELIST is not: "
             "pass all of Slurm's variables, or unset "
             "SLURM_JOB_ID to use this host alone"));
  TROUPE_TRY(auto names, expand_host_list(list->text, list->name));
  auto is_of_step = list->name == "SLURM_STEP_NODELIST";
  auto count_name = is_of_step ? "SLURM_STEP_NUM_NODES" : "SLURM_JOB_NUM_NODES";
  TROUPE_TRY(auto count, variables.number_of(count_name));
  if (count && static_cast<std::size_t>(*count) != names.size())
    return slurm_contradiction(
      concat(count_name, '=', *count, ", but ", list->name, '=',
             cut_text(list->text, 200), " names ", names.size()));
  auto tasks_name =
    is_of_step ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
  // In a step, SLURM_TASKS_PER_NODE is that of the step: mpirun's daemons run
  // in one.
  std::vector<int> tasks;
  if (is_of_step || !variables.text_of("SLURM_STEP_NODELIST")
      || has_step_of_other_job(variables)) {
    TROUPE_TRY(tasks,
               counts_of(variables, tasks_name, names.size(), list->name));
  }
  for (std::size_t i = 0; i < names.size(); ++i)
    result.hosts.push_back(
      {names[i], tasks.empty() ? std::nullopt : std::optional{tasks[i]}});
  TROUPE_TRY(result.own_index, own_node(variables, names, of_step));
  return result;
}

expected<std::vector<int>> expand_slurm_counts(std::string_view text,
                                               std::string_view name) {
  auto at = text.data();
  auto end = at + text.size();
  auto mistake = [&] {
    return slurm_contradiction(concat(
      name, '=', cut_text(text, 200), ": at character ", at - text.data() + 1,
      ": counts such as 4,1 or 1(x3) are expected, "
      "for at most ",
      max_hosts, " nodes"));
  };
  auto read_number = [&](int& x) {
    auto read = std::from_chars(at, end, x);
    if (read.ec != std::errc{} || x < 0)
      return false;
    at = read.ptr;
    return true;
  };
  std::vector<int> result;
  for (;;) {
    int count = 0;
    if (!read_number(count))
      return mistake();
    int times = 1;
    if (std::string_view{at, end}.starts_with("(x")) {
      at += 2;
      if (!read_number(times) || times < 1 || at == end || *at != ')')
        return mistake();
      ++at;
    }
    if (static_cast<std::size_t>(times) > max_hosts - result.size())
      return mistake();
    result.insert(result.end(), static_cast<std::size_t>(times), count);
    if (at == end)
      return result;
    if (*at != ',')
      return mistake();
    ++at;
  }
}

} // namespace troupe::internal

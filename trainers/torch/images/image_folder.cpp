#include "troupe/trainers/torch/images/image_folder.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/trainers/torch/throw_invalid_argument.hpp"

namespace troupe {

using namespace internal;

struct image_folder::content {
  struct file {
    std::string path; // below root
    std::int64_t label;
  };

  fs::path root;
  std::vector<std::string> classes;
  std::vector<file> files;
};

namespace {

constexpr std::array endings{".jpg", ".jpeg", ".png"};

bool is_image(const fs::path& x) {
  auto ending = x.extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  return std::ranges::find(endings, ending) != endings.end();
}

std::vector<std::string> folders_in(const fs::path& root) {
  std::vector<std::string> result;
  boost::system::error_code code;
  auto i = fs::directory_iterator{root, code};
  for (; !code && i != fs::directory_iterator{}; i.increment(code))
    if (value_or_throw(look_up(i->path())).is_folder())
      result.push_back(i->path().filename().string());
  if (code)
    throw train_error{storage_error("list", root, code.value())};
  std::ranges::sort(result);
  return result;
}

std::vector<fs::path> images_below(const fs::path& folder) {
  std::vector<fs::path> result;
  boost::system::error_code code;
  auto i = fs::recursive_directory_iterator{folder, code};
  for (; !code && i != fs::recursive_directory_iterator{}; i.increment(code)) {
    auto& path = i->path();
    if (!is_image(path))
      continue;
    auto found = value_or_throw(look_up(path));
    if (!found.exists())
      throw_invalid_argument(path.string(),
                             " leads to no file: it is a link whose target is "
                             "missing, or the file is gone");
    if (found.is_file())
      result.push_back(path);
  }
  if (code)
    throw train_error{storage_error("list", folder, code.value())};
  std::ranges::sort(result);
  return result;
}

} // namespace

image_folder::image_folder(const fs::path& root, image_transform transform,
                           image_options how)
  : transform_(std::move(transform)), how_(how) {
  auto found = std::make_shared<content>();
  found->root = root;
  found->classes = folders_in(root);
  if (found->classes.empty())
    throw_invalid_argument(root.string(), " has no folders: it must have one "
                                          "for each class of images");
  for (std::size_t label = 0; label < found->classes.size(); ++label) {
    auto& name = found->classes[label];
    auto before = found->files.size();
    for (auto& path : images_below(root / name))
      found->files.push_back({path.lexically_relative(root).string(),
                              static_cast<std::int64_t>(label)});
    if (found->files.size() == before)
      throw_invalid_argument((root / name).string(),
                             " has no images: no file below it ends in .jpg, "
                             ".jpeg or .png");
  }
  content_ = std::move(found);
}

std::int64_t image_folder::size() const noexcept {
  return static_cast<std::int64_t>(content_->files.size());
}

image_folder::sample image_folder::get(std::int64_t index,
                                       at::Generator random) const {
  auto file = path(index);
  auto image = read_image(file, how_);
  try {
    return {transform_(std::move(image), random), label(index)};
  } catch (const train_error& x) {
    throw train_error{
      {x.reason().code, file.string() + ": " + x.reason().message}};
  }
}

const std::vector<std::string>& image_folder::classes() const noexcept {
  return content_->classes;
}

fs::path image_folder::path(std::int64_t index) const {
  return content_->root
         / content_->files.at(static_cast<std::size_t>(index)).path;
}

std::int64_t image_folder::label(std::int64_t index) const {
  return content_->files.at(static_cast<std::size_t>(index)).label;
}

} // namespace troupe

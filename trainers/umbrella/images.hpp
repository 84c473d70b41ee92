#pragma once

// For programs that train on image files: JPEG and PNG.

#include "troupe/torch.hpp"
#include "troupe/trainers/torch/images/image_file.hpp"
#include "troupe/trainers/torch/images/image_folder.hpp"
#include "troupe/trainers/torch/images/image_transforms.hpp"

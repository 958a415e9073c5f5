"""NVIDIA's Alpamayo driving models as a ROS 2 package."""

from pkgutil import extend_path

# The generated messages are installed elsewhere under the same package name; this makes alpamayo_ros.msg importable
# from the source tree too.
__path__ = extend_path(__path__, __name__)

__version__ = "0.1.0"

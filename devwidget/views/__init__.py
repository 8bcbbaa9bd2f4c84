"""SHAPING: records -> rows, trees and series that any screen can draw."""
